------------------------------- MODULE Claim -------------------------------
(* One message, and the workers that claim it, send it and settle it. Checks that it is not sent twice unasked and that
   it is not lost, when workers crash, freeze and continue, and when the answers to commits are late or lost.

   Models the claim and its fence (src/store/queue/claim.rs: mark; src/lifecycle/transition.rs: resolve), the group commit
   (src/store/queue/commit.rs: commit; src/sender/commit.rs: plan_parts), orphans (src/store/queue/workers.rs: orphans;
   src/sender/dispatcher/planner.rs: plan_orphans), the lease (src/sender/lease.rs: covers, beat, find_dead;
   src/store/queue/workers.rs: reclaim, reclaim_without_worker) and the start of a request (src/sender/request.rs: check_start,
   attempt). Provider and lookup are atomic here; see Doubt.tla.

   A frozen worker takes no steps while time passes. Time has no end: only ages are kept, up to the largest one that
   matters. *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
    Workers,        \* Processes of one host.
    Lease,          \* In ticks. A worker is silent when its heartbeat is that old.
    ClaimSpan,      \* A request starts within this time after its claim was planned: half a lease.
    AbsentAfter,    \* How long after the last attempt "not found" proves that there was none.
    MaxClaims, MaxIds, MaxLost, MaxCrashes, MaxReboots,
    HasMarks        \* A mark that survives the process, not the host, before each request and after each response.

CONSTANTS \* Each is FALSE in a correct specification.
    IgnoresClaim,           \* A settlement changes its row whatever claim that has.
    ReleasesBesideCommits,  \* Orphans are released while a commit of their worker runs.
    StartsUnchecked,        \* A request starts without a check of the lease and of the deadline of its claim.
    ForgetsMessage,         \* A worker remembers messages, not claims: the end of an old claim removes a new one.
    KeepsOrphans,           \* Orphans are not released.
    ReleasesSilent,         \* What has no mark is released also if its process may only be frozen.
    MarksAfterStart         \* The mark is written after the request has started.

VARIABLES
    row,            \* The message in the database.
    registered,     \* The ids in table `worker`.
    beat,           \* The age of each id's last heartbeat, which its process knows, too.
    lastId,
    idOf,           \* The id of each process; 0: it does not run.
    booted,         \* The ids that were registered since the host was booted.
    task,           \* What became of each claim in the memory of its process.
    mark,           \* The mark of each claim.
    commit,         \* The commit that each process waits for.
    strays,         \* Commits that are not waited for any more, but may still be applied.
    remembered,     \* The processes that remember the message; only with ForgetsMessage.
    accepted,       \* How often the provider has accepted the message.
    isEarly,        \* An orphan was released whose commit was still waited for.
    lost, crashes, reboots

vars == <<row, registered, beat, lastId, idOf, booted, task, mark, commit, strays, remembered, accepted, isEarly, lost,
          crashes, reboots>>

Claims == 1..MaxClaims
Ids == 1..MaxIds
Results == {"yes", "no", "unknown", "unused"}
Active == {"claimed", "checked", "marked", "sentYes", "sentNo"} \union Results
\* "pending": committed, but its process does not know of it yet. "over": no process knows of it any more, or ever will.
Phases == Active \union {"none", "pending", "over"}

NoTask == [phase |-> "none", worker |-> 0, id |-> 0, left |-> 0]
Ended == [NoTask EXCEPT !.phase = "over"]
NoCommit == [stage |-> "none", id |-> 0, settles |-> {}, wants |-> FALSE, orphan |-> 0, age |-> 0, left |-> 0, got |-> 0]

Min(x, y) == IF x < y THEN x ELSE y
Symmetry == Permutations(Workers)
Less(x) == IF x > 0 THEN x - 1 ELSE 0
WorkerNumber == 1..Cardinality(Workers)

TypeOK ==
    /\ row.state \in {"ready", "sending", "unknown", "sent"}
    /\ row.claim \in 0..MaxClaims /\ row.owner \in 0..MaxIds /\ row.late \in BOOLEAN
    /\ \A c \in Claims : task[c].phase \in Phases /\ mark[c] \in {"none", "begun", "yes", "no"}
    /\ \A w \in Workers : commit[w].stage \in {"none", "running", "applied"}

Init ==
    /\ row = [state |-> "ready", claim |-> 0, owner |-> 0, late |-> FALSE, age |-> 0]
    /\ registered = WorkerNumber
    /\ beat = [id \in Ids |-> 0]
    /\ lastId = Cardinality(Workers)
    /\ idOf \in [Workers -> WorkerNumber] /\ \A v, w \in Workers : v # w => idOf[v] # idOf[w]
    /\ booted = WorkerNumber
    /\ task = [c \in Claims |-> NoTask]
    /\ mark = [c \in Claims |-> "none"]
    /\ commit = [w \in Workers |-> NoCommit]
    /\ strays = {}
    /\ remembered = {}
    /\ accepted = 0
    /\ isEarly = FALSE
    /\ lost = 0 /\ crashes = 0 /\ reboots = 0

----------------------------------------------------------------------------
(* Decisions. *)

\* The row after a settlement of claim c: src/lifecycle/transition.rs, resolve. A message that may have been accepted is never
\* ready here, so the last claim is its only doubt.
Resolve(r, c, result) ==
    LET isOwn == r.claim = c \/ IgnoresClaim
        to(state) == [r EXCEPT !.state = state, !.owner = 0, !.age = 0] IN
    IF result = "yes" THEN
        IF r.state = "sending" /\ r.claim # c THEN [r EXCEPT !.late = TRUE] ELSE [to("sent") EXCEPT !.late = FALSE]
    ELSE IF r.state = "sent" \/ ~isOwn THEN r
    ELSE IF r.state = "sending" /\ r.late THEN [to("sent") EXCEPT !.late = FALSE]
    ELSE IF r.state = "sending" THEN (IF result = "unknown" THEN to("unknown") ELSE to("ready"))
    ELSE IF r.state = "unknown" /\ result \in {"no", "unused"} THEN to("ready")
    ELSE r

RECURSIVE ResolveAll(_, _)
ResolveAll(r, settlements) ==
    IF settlements = {} THEN r
    ELSE LET first == CHOOSE s \in settlements : \A other \in settlements : s[1] <= other[1] IN
         ResolveAll(Resolve(r, first[1], first[2]), settlements \ {first})

Holds(id) == id # 0 /\ beat[id] < Lease
IsGone(id) == \A w \in Workers : idOf[w] # id

Knows(w) ==
    IF ForgetsMessage THEN w \in remembered
    ELSE \E c \in Claims : task[c].worker = w /\ task[c].phase \in Active

\* The claim that worker w would release as an orphan; 0: none.
Orphan(w) ==
    IF row.state = "sending" /\ row.owner = idOf[w] /\ row.age >= Lease /\ ~Knows(w) /\ ~KeepsOrphans
    THEN row.claim ELSE 0

----------------------------------------------------------------------------
(* Time and leases. *)

Tick ==
    /\ row' = [row EXCEPT !.age = CASE row.state = "sending" -> Min(@ + 1, Lease)
                                    [] row.state = "unknown" -> Min(@ + 1, AbsentAfter)
                                    [] OTHER -> 0]
    /\ beat' = [id \in Ids |-> IF id \in registered \/ ~IsGone(id) THEN Min(beat[id] + 1, Lease) ELSE 0]
    /\ task' = [c \in Claims |-> [task[c] EXCEPT !.left = Less(@)]]
    /\ commit' = [w \in Workers |-> IF commit[w].stage = "running" /\ commit[w].wants
                                    THEN [commit[w] EXCEPT !.left = Less(@), !.age = Min(@ + 1, Lease)]
                                    ELSE commit[w]]
    /\ strays' = {[s EXCEPT !.age = IF s.wants THEN Min(@ + 1, Lease) ELSE 0] : s \in strays}
    /\ UNCHANGED <<registered, lastId, idOf, booted, mark, remembered, accepted, isEarly, lost, crashes, reboots>>

Register(w) ==
    /\ lastId < MaxIds
    /\ lastId' = lastId + 1
    /\ registered' = registered \union {lastId + 1}
    /\ booted' = booted \union {lastId + 1}
    /\ beat' = [beat EXCEPT ![lastId + 1] = 0, ![IF idOf[w] = 0 THEN lastId + 1 ELSE idOf[w]] = 0]
    /\ idOf' = [idOf EXCEPT ![w] = lastId + 1]

\* A worker that was declared dead continues under a new id.
Heartbeat(w) ==
    /\ idOf[w] # 0
    /\ IF idOf[w] \in registered
       THEN beat' = [beat EXCEPT ![idOf[w]] = 0] /\ UNCHANGED <<registered, lastId, idOf, booted>>
       ELSE Register(w)
    /\ UNCHANGED <<row, task, mark, commit, strays, remembered, accepted, isEarly, lost, crashes, reboots>>

\* What the row becomes when the worker of its claim is reclaimed. Only a process that is certainly gone makes no request
\* after its mark was read.
Reclaimed(isCertain) ==
    LET result == IF HasMarks /\ isCertain
                  THEN CASE mark[row.claim] = "none" -> "unused"
                         [] mark[row.claim] = "begun" -> "unknown"
                         [] OTHER -> mark[row.claim]
                  ELSE "unknown" IN
    Resolve(row, row.claim, result)

Reclaim(id) ==
    LET isCertain == IsGone(id) /\ id \in booted IN
    /\ id \in registered
    /\ \E w \in Workers : idOf[w] \notin {0, id} /\ Holds(idOf[w])
    /\ isCertain \/ beat[id] >= Lease
    /\ registered' = registered \ {id}
    /\ row' = IF row.state = "sending" /\ row.owner = id THEN Reclaimed(isCertain \/ ReleasesSilent) ELSE row
    /\ beat' = IF IsGone(id) THEN [beat EXCEPT ![id] = 0] ELSE beat
    /\ UNCHANGED <<lastId, idOf, booted, task, mark, commit, strays, remembered, accepted, isEarly, lost, crashes, reboots>>

ReclaimWithoutWorker ==
    /\ row.state = "sending" /\ row.owner \notin registered
    /\ \E w \in Workers : Holds(idOf[w])
    /\ row' = Resolve(row, row.claim, "unknown")
    /\ UNCHANGED <<registered, beat, lastId, idOf, booted, task, mark, commit, strays, remembered, accepted, isEarly, lost,
                   crashes, reboots>>

----------------------------------------------------------------------------
(* The group commit. *)

Settlements(w) ==
    {<<c, task[c].phase>> : c \in {c \in Claims : task[c].worker = w /\ task[c].phase \in Results}}

Plan(w) ==
    /\ idOf[w] # 0 /\ commit[w].stage = "none"
    /\ \E wants \in BOOLEAN, orphan \in {0, Orphan(w)} :
        /\ (wants \/ orphan # 0) => Holds(idOf[w])
        /\ wants \/ orphan # 0 \/ Settlements(w) # {}
        /\ wants => row.claim < MaxClaims /\ (row.state = "ready" \/ orphan # 0)
        /\ commit' = [commit EXCEPT ![w] = [NoCommit EXCEPT !.stage = "running", !.id = idOf[w],
                        !.settles = Settlements(w), !.wants = wants, !.orphan = orphan,
                        !.left = IF wants THEN ClaimSpan ELSE 0]]
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, task, mark, strays, remembered, accepted, isEarly, lost,
                   crashes, reboots>>

\* The transaction of a commit. Sets the row, the claim that it made, and whether it released a claim too early.
Transaction(c, worker) ==
    LET settled == ResolveAll(row, c.settles)
        isReleased == c.orphan # 0 /\ settled.state = "sending" /\ settled.claim = c.orphan
        released == IF isReleased THEN Resolve(settled, c.orphan, "unused") ELSE settled
        isClaimed == c.wants /\ released.state = "ready" /\ c.id \in registered /\ released.claim < MaxClaims
        number == released.claim + 1 IN
    /\ row' = IF isClaimed
              THEN [released EXCEPT !.state = "sending", !.claim = number, !.owner = c.id, !.age = c.age]
              ELSE released
    /\ isEarly' = (isEarly \/ (isReleased /\ task[c.orphan].phase = "pending"))
    /\ task' = IF isClaimed
               THEN [task EXCEPT ![number] = IF worker = 0 THEN Ended ELSE
                        [phase |-> "pending", worker |-> worker, id |-> c.id, left |-> c.left]]
               ELSE task
    /\ IF worker = 0 THEN UNCHANGED commit
       ELSE commit' = [commit EXCEPT ![worker] = [NoCommit EXCEPT !.stage = "applied", !.id = c.id,
                        !.settles = c.settles, !.wants = c.wants, !.got = IF isClaimed THEN number ELSE 0]]

Apply(w) ==
    /\ commit[w].stage = "running"
    /\ Transaction(commit[w], w)
    /\ UNCHANGED <<registered, beat, lastId, idOf, booted, mark, strays, remembered, accepted, lost, crashes, reboots>>

Answer(w) ==
    LET c == commit[w]
        settled == {s[1] : s \in c.settles} IN
    /\ c.stage = "applied"
    /\ task' = [n \in Claims |-> IF n \in settled THEN Ended
                                 ELSE IF n = c.got THEN [task[n] EXCEPT !.phase = "claimed"] ELSE task[n]]
    /\ remembered' = IF ~ForgetsMessage THEN {}
                     ELSE IF c.got # 0 THEN remembered \union {w}
                     ELSE IF settled # {} THEN remembered \ {w} ELSE remembered
    /\ commit' = [commit EXCEPT ![w] = NoCommit]
    \* A worker that is not registered learns that from the commit, and starts nothing under that id.
    /\ beat' = IF c.wants /\ c.id \notin registered THEN [beat EXCEPT ![c.id] = Lease] ELSE beat
    /\ UNCHANGED <<row, registered, lastId, idOf, booted, mark, strays, accepted, isEarly, lost, crashes, reboots>>

\* What is left of a commit that is not waited for any more: it may still be applied, if it was not.
Left(w) == IF commit[w].stage = "running" /\ (commit[w].wants \/ commit[w].settles # {})
           THEN {[commit[w] EXCEPT !.left = 0, !.orphan = 0]} ELSE {}
WithoutAnswer(t, w) == [c \in Claims |-> IF c = commit[w].got THEN Ended ELSE t[c]]

\* The worker gives up the commit. Its results stay in memory, and are committed again.
Lose(w) ==
    /\ commit[w].stage # "none" /\ lost < MaxLost
    /\ lost' = lost + 1
    /\ strays' = strays \union Left(w)
    /\ task' = WithoutAnswer(task, w)
    /\ commit' = [commit EXCEPT ![w] = NoCommit]
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, mark, remembered, accepted, isEarly, crashes, reboots>>

ApplyStray(s) ==
    /\ Transaction(s, 0)
    /\ strays' = strays \ {s}
    /\ UNCHANGED <<registered, beat, lastId, idOf, booted, mark, remembered, accepted, lost, crashes, reboots>>

\* Another task of the same worker releases orphans in a transaction of its own.
ReleaseBeside(w) ==
    /\ ReleasesBesideCommits
    /\ idOf[w] # 0 /\ Holds(idOf[w]) /\ Orphan(w) # 0
    /\ row' = Resolve(row, row.claim, "unused")
    /\ isEarly' = (isEarly \/ task[row.claim].phase = "pending")
    /\ UNCHANGED <<registered, beat, lastId, idOf, booted, task, mark, commit, strays, remembered, accepted, lost, crashes,
                   reboots>>

----------------------------------------------------------------------------
(* Requests. *)

Step(c, phase) ==
    task' = [task EXCEPT ![c] = [phase |-> phase, worker |-> @.worker, id |-> 0,
                                 left |-> IF phase \in {"checked", "marked"} THEN @.left ELSE 0]]

\* The last check of lease and deadline.
CheckStart(c) ==
    LET t == task[c] IN
    /\ t.phase = "claimed"
    /\ StartsUnchecked \/ (t.id = idOf[t.worker] /\ Holds(t.id) /\ t.left > 0)
    /\ Step(c, "checked")
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, mark, commit, strays, remembered, accepted, isEarly, lost,
                   crashes, reboots>>

WriteMark(c) ==
    /\ HasMarks
    /\ \/ task[c].phase = "checked" /\ ~MarksAfterStart /\ Step(c, "marked")
       \/ task[c].phase \in {"sentYes", "sentNo"} /\ mark[c] = "none" /\ UNCHANGED task
    /\ mark' = [mark EXCEPT ![c] = "begun"]
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, commit, strays, remembered, accepted, isEarly, lost, crashes,
                   reboots>>

\* The request is written, unless its deadline has passed since the check: src/provider/client/mod.rs, exchange.
Write(c) ==
    /\ task[c].phase = (IF HasMarks /\ ~MarksAfterStart THEN "marked" ELSE "checked")
    /\ StartsUnchecked \/ task[c].left > 0
    /\ \/ Step(c, "sentYes") /\ accepted' = accepted + 1
       \/ Step(c, "sentNo") /\ UNCHANGED accepted
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, mark, commit, strays, remembered, isEarly, lost, crashes,
                   reboots>>

\* A request that has not started goes back: the worker stops, it is too late, or the window has closed.
Release(c) ==
    /\ task[c].phase \in {"claimed", "checked", "marked"}
    /\ Step(c, "unused")
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, mark, commit, strays, remembered, accepted, isEarly, lost,
                   crashes, reboots>>

Receive(c) ==
    /\ \/ task[c].phase = "sentYes" /\ \E result \in {"yes", "unknown"} : Step(c, result)
       \/ task[c].phase = "sentNo" /\ \E result \in {"no", "unknown"} : Step(c, result)
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, mark, commit, strays, remembered, accepted, isEarly, lost,
                   crashes, reboots>>

MarkAnswer(c) ==
    /\ HasMarks /\ task[c].phase \in {"yes", "no"} /\ mark[c] = "begun"
    /\ mark' = [mark EXCEPT ![c] = task[c].phase]
    /\ UNCHANGED <<row, registered, beat, lastId, idOf, booted, task, commit, strays, remembered, accepted, isEarly, lost,
                   crashes, reboots>>

----------------------------------------------------------------------------
(* Crashes, and what the provider shows later. *)

Memory(t, dead) == [c \in Claims |-> IF t[c].worker \in dead THEN Ended ELSE t[c]]

Crash(w) ==
    /\ idOf[w] # 0 /\ crashes < MaxCrashes
    /\ crashes' = crashes + 1
    /\ idOf' = [idOf EXCEPT ![w] = 0]
    /\ task' = Memory(task, {w})
    /\ strays' = strays \union Left(w)
    /\ commit' = [commit EXCEPT ![w] = NoCommit]
    /\ remembered' = remembered \ {w}
    /\ UNCHANGED <<row, registered, beat, lastId, booted, mark, accepted, isEarly, lost, reboots>>

\* All processes end, and the marks are lost.
Reboot ==
    /\ reboots < MaxReboots
    /\ reboots' = reboots + 1
    /\ idOf' = [w \in Workers |-> 0]
    /\ booted' = {}
    /\ mark' = [c \in Claims |-> "none"]
    /\ task' = Memory(task, Workers)
    /\ strays' = strays \union UNION {Left(w) : w \in Workers}
    /\ commit' = [w \in Workers |-> NoCommit]
    /\ remembered' = {}
    /\ UNCHANGED <<row, registered, beat, lastId, accepted, isEarly, lost, crashes>>

Restart(w) ==
    /\ idOf[w] = 0
    /\ Register(w)
    /\ UNCHANGED <<row, task, mark, commit, strays, remembered, accepted, isEarly, lost, crashes, reboots>>

\* A status lookup: the provider has the message, or certainly does not.
LookUp ==
    /\ row.state = "unknown"
    /\ \/ accepted > 0 /\ row' = [row EXCEPT !.state = "sent", !.age = 0]
       \/ accepted = 0 /\ row.age >= AbsentAfter /\ row' = [row EXCEPT !.state = "ready", !.age = 0]
    /\ UNCHANGED <<registered, beat, lastId, idOf, booted, task, mark, commit, strays, remembered, accepted, isEarly, lost,
                   crashes, reboots>>

Next ==
    \/ Tick \/ ReclaimWithoutWorker \/ LookUp \/ Reboot
    \/ \E w \in Workers : Heartbeat(w) \/ Plan(w) \/ Apply(w) \/ Answer(w) \/ Lose(w) \/ ReleaseBeside(w) \/ Crash(w)
                            \/ Restart(w)
    \/ \E id \in Ids : Reclaim(id)
    \/ \E s \in strays : ApplyStray(s)
    \/ \E c \in Claims : CheckStart(c) \/ WriteMark(c) \/ Write(c) \/ Release(c) \/ Receive(c) \/ MarkAnswer(c)

Spec == Init /\ [][Next]_vars

\* Processes that run continue, and time passes.
Fairness ==
    /\ WF_vars(Tick)
    /\ \A w \in Workers : WF_vars(Heartbeat(w)) /\ SF_vars(Plan(w)) /\ WF_vars(Apply(w) \/ Answer(w))
    /\ SF_vars(\E id \in Ids : Reclaim(id))
    /\ WF_vars(\E c \in Claims : Release(c) \/ Receive(c))
FairSpec == Spec /\ Fairness

\* False where no request can start any more, and no invariant be violated: TLC looks no further.
MayStillFail ==
    \/ \E c \in Claims : task[c].phase \in {"pending", "claimed", "checked", "marked"}
    \/ row.state # "sent" /\ (row.claim < MaxClaims \/ accepted > 0)

----------------------------------------------------------------------------
(* Invariants. *)

\* The provider accepts the message at most once.
NotSentTwice == accepted <= 1

\* A message that was accepted is not queued: no worker will send it again.
AcceptedIsNotQueued == accepted > 0 => row.state # "ready"

\* A message that counts as sent was accepted.
SentWasAccepted == row.state = "sent" => accepted > 0

\* A claim is not released as an orphan while its commit is waited for.
NotReleasedEarly == ~isEarly

\* A message does not stay claimed while a worker runs: it is settled, released or reclaimed. Only with FairSpec.
NotStuck == row.state = "sending" ~> row.state # "sending" \/ \A w \in Workers : idOf[w] \notin registered

----------------------------------------------------------------------------
(* Reachable situations: each of these is violated. *)

NoLateResult == \A c \in Claims : ~(task[c].phase = "yes" /\ row.state = "unknown" /\ row.claim = c)
NoOldResult == \A c \in Claims : ~(task[c].phase \in Results /\ row.state = "sending" /\ row.claim > c)
NoOrphan == \A w \in Workers : commit[w].orphan = 0
=============================================================================
