------------------------------- MODULE Permit -------------------------------
(* A rate limit that all workers share: one row of the database, from which they take permits with start instants. Checks
   that no sliding window has more starts than the limit, when workers crash, freeze, restart and return permits.

   Models src/limit/shared.rs: begin, set_tolerance, earliest, take, give_back, spacing_us; src/limit/allocator.rs:
   give_back, allocate; src/store/limits/rows.rs: lock, store; src/store/queue/commit.rs: permit; src/sender/request.rs: start_span,
   check_start; src/sender/provider_state/mod.rs: release, void_permits.

   All requests cost 1, and there is one window. Instants are relative to now. Each process knows the time with an error
   of its own, which does not change: its starts are late by it, within the tolerance. *)
EXTENDS Integers, FiniteSets, Sequences, TLC

CONSTANTS
    Workers,        \* Processes.
    Window, Limit,  \* At most Limit starts in any span of length Window.
    Tolerance,      \* How long after its instant a request starts at the latest.
    Spread,         \* How much of that is not the error of the clock.
    Ahead,          \* How long after now a permit may be.
    MaxPermits,     \* How many permits are not used or returned yet, of all processes.
    MaxIds

CONSTANTS \* Each is FALSE in a correct specification.
    GivesTwice,     \* Two workers read the row before one of them writes it.
    StartsLate,     \* A request starts although its permit is too old.
    ReturnsUsed,    \* A permit is returned whose request has started.
    ReturnsTwice,   \* A return whose answer was lost is repeated.
    KeepsSpacing    \* A worker that takes over from a sole user adds no space.

VARIABLES
    next,       \* The row: the first instant that may be permitted.
    usage,      \* The row: who took permits last, since when, and whether spaced for that worker alone.
    idOf,       \* The id of each process; 0: it does not run.
    lastId,
    error,      \* How late the clock of each process is.
    permits,    \* Unused permits in memory.
    used,       \* Permits that were used lately; only with ReturnsUsed.
    returned,   \* Returns that may be applied again; only with ReturnsTwice.
    starts      \* The ages of the starts in the last window and tolerance, the latest first.

vars == <<next, usage, idOf, lastId, error, permits, used, returned, starts>>

Max(x, y) == IF x > y THEN x ELSE y
Min(x, y) == IF x < y THEN x ELSE y
Symmetry == Permutations(Workers)
Number == 1..Cardinality(Workers)
NoUsage == [id |-> 0, since |-> 0, isAlone |-> FALSE]

\* The space between two permits: Limit + 1 of them span more than a window and a tolerance.
Spacing(tolerance) == (Window + tolerance + Limit - 1) \div Limit

AloneAfter == Window + Tolerance

\* As `begin` of this worker sees the row.
IsAlone(id) == usage.id = id /\ usage.since > AloneAfter
SpacingOf(id) == Spacing(IF IsAlone(id) THEN Spread ELSE Tolerance)
Handover(id) == IF usage.id \notin {0, id} /\ usage.isAlone /\ ~KeepsSpacing THEN Tolerance - Spread ELSE 0

Init ==
    /\ next = 0 /\ usage = NoUsage
    /\ idOf \in [Workers -> Number] /\ \A v, w \in Workers : v # w => idOf[v] # idOf[w]
    /\ lastId = Cardinality(Workers)
    /\ error \in [Workers -> 0..(Tolerance - Spread)]
    /\ permits = {} /\ used = {} /\ returned = {} /\ starts = <<>>

----------------------------------------------------------------------------
Aged(set) == {[p EXCEPT !.at = @ - 1] : p \in {p \in set : p.at > -(Window + Tolerance)}}

Tick ==
    /\ next' = Max(next - 1, -(2 * Window))
    /\ usage' = IF usage.id = 0 THEN NoUsage ELSE [usage EXCEPT !.since = Min(@ + 1, AloneAfter + 1)]
    /\ permits' = Aged(permits) /\ used' = Aged(used) /\ returned' = Aged(returned)
    /\ starts' = SelectSeq([i \in DOMAIN starts |-> starts[i] + 1], LAMBDA age : age <= Window)
    /\ UNCHANGED <<idOf, lastId, error>>

\* A worker takes a permit that starts within `Ahead` of now.
Take(w) ==
    LET id == idOf[w]
        at == Max(0, next + Handover(id)) IN
    /\ id # 0 /\ at <= Ahead /\ Cardinality(permits) < MaxPermits
    /\ next' \in IF GivesTwice THEN {next, at + SpacingOf(id)} ELSE {at + SpacingOf(id)}
    /\ usage' = IF usage.id = id THEN [usage EXCEPT !.isAlone = IsAlone(id)]
                ELSE [id |-> id, since |-> -at, isAlone |-> FALSE]
    /\ permits' = permits \union {[worker |-> w, at |-> at]}
    /\ UNCHANGED <<idOf, lastId, error, used, returned, starts>>

\* A request starts when the clock of its worker shows the middle of the tolerance, so within the tolerance by the true
\* time: late by the error, and by as much of the spread as the process was delayed. A worker that was frozen checks the
\* time before it starts.
Start(p) ==
    LET late == -p.at IN
    /\ idOf[p.worker] # 0
    /\ late >= error[p.worker]
    /\ StartsLate \/ late <= error[p.worker] + Spread
    /\ starts' = <<0>> \o starts
    /\ permits' = permits \ {p}
    /\ used' = IF ReturnsUsed THEN used \union {p} ELSE {}
    /\ UNCHANGED <<next, usage, idOf, lastId, error, returned>>

\* Takes the permit back: only the last one changes when the next one starts.
GiveBack(p) ==
    next' = IF next = p.at + SpacingOf(idOf[p.worker]) THEN p.at ELSE next

\* An unused permit is returned, whether its instant has passed or not. If the answer is lost, the permit is void.
Return(p) ==
    /\ idOf[p.worker] # 0
    /\ GiveBack(p)
    /\ permits' = permits \ {p}
    /\ returned' = IF ReturnsTwice THEN returned \union {p} ELSE {}
    /\ UNCHANGED <<usage, idOf, lastId, error, used, starts>>

\* An unused permit is dropped: its return was lost, or the commit that took it.
Void(p) ==
    /\ permits' = permits \ {p}
    /\ UNCHANGED <<next, usage, idOf, lastId, error, used, returned, starts>>

ReturnAgain(p) ==
    /\ idOf[p.worker] # 0
    /\ GiveBack(p)
    /\ used' = used \ {p} /\ returned' = returned \ {p}
    /\ UNCHANGED <<usage, idOf, lastId, error, permits, starts>>

\* The permits of a process that ends are not used.
Crash(w) ==
    /\ idOf[w] # 0
    /\ idOf' = [idOf EXCEPT ![w] = 0]
    /\ permits' = {p \in permits : p.worker # w}
    /\ used' = {p \in used : p.worker # w} /\ returned' = {p \in returned : p.worker # w}
    /\ UNCHANGED <<next, usage, lastId, error, starts>>

\* It starts again under a new id, with another error of its clock.
Restart(w) ==
    /\ idOf[w] = 0 /\ lastId < MaxIds
    /\ lastId' = lastId + 1
    /\ idOf' = [idOf EXCEPT ![w] = lastId + 1]
    /\ \E late \in 0..(Tolerance - Spread) : error' = [error EXCEPT ![w] = late]
    /\ UNCHANGED <<next, usage, permits, used, returned, starts>>

Next ==
    \/ Tick
    \/ \E w \in Workers : Take(w) \/ Crash(w) \/ Restart(w)
    \/ \E p \in permits : Start(p) \/ Return(p) \/ Void(p)
    \/ \E p \in used \union returned : ReturnAgain(p)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* No span of length Window has more starts than Limit.
WindowHolds ==
    \A i \in DOMAIN starts : i + Limit \in DOMAIN starts => starts[i + Limit] - starts[i] >= Window

----------------------------------------------------------------------------
(* Reachable situations: each of these is violated. *)
NoSoleUser == ~usage.isAlone
NoFullWindow == Len(starts) < Limit \/ starts[Limit] >= Window
=============================================================================
