------------------------------- MODULE Settle -------------------------------
(* The settlements of one message, and commits whose answers are lost: they are repeated, also by the next worker from a
   journal, and one that is not waited for any more may be applied later. Checks that no counter changes twice, and that
   an answer of the provider that a worker knows is not lost.

   Models src/lifecycle/transition.rs: resolve, with_accepted_claim; src/store/queue/results/settle.rs: settle_all, accept_elsewhere, refund;
   src/store/queue/results/transitions.rs: set_aside; src/sender/commit.rs: plan_parts, keep_unstored, write_journal, settle_journal.

   A commit has one settlement here: those of several messages do not change each other, and the answer to a commit
   that settles several is lost for all of them. *)
EXTENDS Integers, FiniteSets

CONSTANTS
    MaxClaims, MaxLost

CONSTANTS \* Each is FALSE in a correct specification.
    SettlesTwice,       \* A settlement that was not accepted changes its row whatever state and claim that has.
    CountsTwice,        \* An acceptance is counted without a look at the claims that were counted.
    RefundsTwice,       \* A refund does not look at the last refunded claim.
    DropsAnswer         \* A worker forgets what it knows when a commit fails.

VARIABLES
    row,        \* The message in the tables.
    memory,     \* What a worker knows of each claim and has not stored.
    journal,    \* The same, in files of workers that have ended.
    strays,     \* Settlements of commits that are not waited for any more.
    answer,     \* What the provider answered to each claim; "none" before a worker knows it, "killed" or "stored" when it is
                \* not in memory any more.
    refunds,    \* The claims whose refund is still to be stored.
    counted,    \* What each claim should have added to `attempts`.
    lost

vars == <<row, memory, journal, strays, answer, refunds, counted, lost>>

Claims == 1..MaxClaims
\* "again": not accepted, and the attempt counts. "free": the attempt does not count. "last": the same, and none is left.
\* "rejected": fails.
Results == {"yes", "again", "free", "last", "rejected", "unknown"}

Sum(f) ==
    LET RECURSIVE Of(_)
        Of(s) == IF s = {} THEN 0 ELSE LET c == CHOOSE c \in s : TRUE IN f[c] + Of(s \ {c}) IN
    Of(Claims)

Init ==
    /\ row = [place |-> "ready", claim |-> 0, attempts |-> 0, accepted |-> 0, counts |-> {}, late |-> {}, refunded |-> 0,
              isUnavailable |-> FALSE, isAside |-> FALSE,
              inDoubt |-> FALSE, doubtClaim |-> 0]
    /\ memory = [c \in Claims |-> "none"]
    /\ journal = [c \in Claims |-> "none"]
    /\ strays = {}
    /\ answer = [c \in Claims |-> "none"]
    /\ refunds = {}
    /\ counted = [c \in Claims |-> 0]
    /\ lost = 0

----------------------------------------------------------------------------
(* Decisions. *)

IsCounted(result) == IF result \in {"again", "last", "rejected", "unknown"} THEN 1 ELSE 0
Certain(r) == [r EXCEPT !.inDoubt = FALSE, !.doubtClaim = 0]
Doubtful(r, c) == [r EXCEPT !.doubtClaim = IF r.inDoubt THEN 0 ELSE c, !.inDoubt = TRUE]

\* Moves the row to `sms_sent`. `late` are the claims that were noted before, with this one.
Accept(r, claims, attempts, accepted) ==
    [Certain(r) EXCEPT !.place = "sent", !.attempts = @ + attempts, !.accepted = @ + accepted, !.counts = claims]

\* The row after an attempt that was not accepted. `before`: how many of the attempts are counted already.
NotAccepted(r, c, result, wasInDoubt, before) ==
    LET n == [r EXCEPT !.attempts = @ + IsCounted(result) - before]
        earlier == [n EXCEPT !.doubtClaim = 0]
        place(x, p) == [x EXCEPT !.place = p] IN
    CASE result = "unknown" -> place(Doubtful(n, c), "unknown")
      [] result \in {"last", "rejected"} ->
            IF wasInDoubt THEN place(earlier, "unknown")
            ELSE [place(Certain(n), "failed") EXCEPT !.isUnavailable = (result = "last")]
      [] OTHER -> IF wasInDoubt THEN place(earlier, "ready") ELSE place(Certain(n), "ready")

Resolve(r, c, result) ==
    IF result = "yes" THEN
        CASE r.place = "sent" ->
                IF c \in r.counts /\ ~CountsTwice THEN r ELSE [r EXCEPT !.accepted = @ + 1, !.counts = @ \union {c}]
          [] r.place = "failed" -> Accept(r, {c}, 0, 1)
          [] r.place = "sending" /\ r.claim # c ->
                IF c \in r.late /\ ~CountsTwice THEN r
                ELSE [r EXCEPT !.late = @ \union {c}, !.accepted = @ + 1]
          [] OTHER -> Accept(r, r.late \union {c}, IF r.place = "sending" THEN 1 ELSE 0,
                             IF c \in r.late THEN 0 ELSE 1)
    ELSE IF r.place \in {"sent", "failed"} THEN r
    ELSE IF SettlesTwice THEN NotAccepted(r, c, result, r.inDoubt, 0)
    ELSE IF r.claim # c THEN r
    ELSE IF r.place = "sending" /\ r.late # {} THEN Accept(r, r.late, IsCounted(result), 0)
    ELSE IF r.place = "sending" THEN NotAccepted(r, c, result, r.inDoubt, 0)
    ELSE IF r.place = "unknown" /\ r.doubtClaim = c /\ r.late = {} /\ result # "unknown"
         THEN NotAccepted(r, c, result, FALSE, 1)
    ELSE r

\* Whether the settlement of a claim that was not accepted takes effect, so that it decides what its attempt counts.
Decides(r, c) ==
    /\ r.claim = c
    /\ r.place = "sending" \/ (r.place = "unknown" /\ r.doubtClaim = c)

\* What the attempt of this claim counts after the settlement. Counted once, however often it is settled.
CountedAfter(c, result) ==
    IF result = "yes"
    THEN IF row.place = "sending" /\ row.claim = c THEN [counted EXCEPT ![c] = 1] ELSE counted
    ELSE IF Decides(row, c) THEN [counted EXCEPT ![c] = IsCounted(result)] ELSE counted

Store(c, result) ==
    /\ row' = Resolve(row, c, result)
    /\ counted' = CountedAfter(c, result)

----------------------------------------------------------------------------
(* Attempts. *)

Claim ==
    /\ row.place = "ready" /\ row.claim < MaxClaims
    /\ row' = [row EXCEPT !.place = "sending", !.claim = @ + 1]
    /\ UNCHANGED <<memory, journal, strays, answer, refunds, counted, lost>>

\* A worker learns what became of a claim, at any time after it. If it does not, it was killed.
Finish(c) ==
    /\ c <= row.claim /\ memory[c] = "none" /\ answer[c] = "none" /\ journal[c] = "none"
    /\ \E result \in Results :
        /\ memory' = [memory EXCEPT ![c] = result]
        /\ answer' = [answer EXCEPT ![c] = result]
    /\ UNCHANGED <<row, journal, strays, refunds, counted, lost>>

\* Another worker declares the worker of the claim dead.
Reclaim ==
    /\ row.place = "sending"
    /\ Store(row.claim, "unknown")
    /\ UNCHANGED <<memory, journal, strays, answer, refunds, lost>>

\* An unknown message is queued: in doubt, or because the provider certainly does not have it. One that was set aside
\* only by an operator, in doubt.
Requeue ==
    /\ row.place = "unknown"
    /\ \/ row' = [row EXCEPT !.place = "ready", !.isAside = FALSE]
       \/ ~row.isAside /\ (\A c \in Claims : answer[c] # "yes") /\ row' = [Certain(row) EXCEPT !.place = "ready"]
    /\ UNCHANGED <<memory, journal, strays, answer, refunds, counted, lost>>

\* A message fails without a request: it expires, or its campaign is cancelled. Table `sms_failed` does not have the
\* refunded claim.
Expire ==
    /\ row.place = "ready" /\ ~row.inDoubt
    /\ row' = [row EXCEPT !.place = "failed", !.refunded = 0]
    /\ UNCHANGED <<memory, journal, strays, answer, refunds, counted, lost>>

\* An operator sends a failed message again, with all attempts.
Retry ==
    /\ row.place = "failed"
    /\ row' = [row EXCEPT !.place = "ready", !.isUnavailable = FALSE, !.attempts = 0, !.refunded = 0]
    /\ counted' = [c \in Claims |-> 0]
    /\ UNCHANGED <<memory, journal, strays, answer, refunds, lost>>

----------------------------------------------------------------------------
(* Commits. *)

\* A commit is applied, and its answer arrives.
Commit(c) ==
    /\ memory[c] # "none"
    /\ Store(c, memory[c])
    /\ memory' = [memory EXCEPT ![c] = "none"]
    /\ refunds' = IF memory[c] \in {"again", "last"} THEN refunds \union {c} ELSE refunds
    /\ UNCHANGED <<journal, strays, answer, lost>>

\* A commit is given up: it was applied, may be applied later, or never is. What it settles is committed again.
Lose(c) ==
    /\ memory[c] # "none" /\ lost < MaxLost
    /\ lost' = lost + 1
    /\ \/ Store(c, memory[c]) /\ UNCHANGED strays
       \/ strays' = strays \union {<<c, memory[c]>>} /\ UNCHANGED <<row, counted>>
    /\ memory' = IF DropsAnswer THEN [memory EXCEPT ![c] = "none"] ELSE memory
    /\ UNCHANGED <<journal, answer, refunds>>

ApplyStray(s) ==
    /\ Store(s[1], s[2])
    /\ \E kept \in {strays, strays \ {s}} : strays' = kept
    /\ lost' = IF strays' = strays THEN lost + 1 ELSE lost
    /\ lost' <= MaxLost
    /\ UNCHANGED <<memory, journal, answer, refunds>>

\* The database rejects the result of this message only: it is set aside as unknown.
SetAside(c) ==
    /\ memory[c] # "none"
    /\ LET isOwn == row.place = "sending" /\ row.claim = c
           isLate == row.place \in {"ready", "unknown"} /\ memory[c] = "yes"
           attempts == IF memory[c] = "free" THEN 0 ELSE 1 IN
       IF isOwn \/ isLate
       THEN /\ row' = [row EXCEPT !.place = "unknown", !.inDoubt = TRUE, !.doubtClaim = 0, !.isAside = TRUE,
                                  !.attempts = IF isOwn THEN @ + attempts ELSE @]
            /\ counted' = IF isOwn THEN [counted EXCEPT ![c] = attempts] ELSE counted
       ELSE UNCHANGED <<row, counted>>
    /\ memory' = [memory EXCEPT ![c] = "none"]
    \* What the provider answered is in the reason of the row now.
    /\ answer' = [answer EXCEPT ![c] = "stored"]
    /\ UNCHANGED <<journal, strays, refunds, lost>>

\* The outage in which the attempt failed is over: it is not counted.
Refund(c) ==
    /\ c \in refunds
    /\ LET isQueued == row.place = "ready" /\ row.claim = c /\ row.attempts > 0
                        /\ (row.refunded # c \/ RefundsTwice) IN
       IF isQueued \/ (row.place = "failed" /\ row.isUnavailable /\ row.claim = c)
       THEN /\ row' = [row EXCEPT !.place = "ready", !.isUnavailable = FALSE, !.attempts = @ - 1, !.refunded = c]
            /\ counted' = [counted EXCEPT ![c] = 0]
       ELSE UNCHANGED <<row, counted>>
    /\ \/ refunds' = refunds \ {c} /\ UNCHANGED lost
       \/ refunds' = refunds /\ lost < MaxLost /\ lost' = lost + 1
    /\ UNCHANGED <<memory, journal, strays, answer>>

\* A worker must end before it could store what it knows.
End(c) ==
    /\ memory[c] # "none"
    /\ journal' = [journal EXCEPT ![c] = memory[c]]
    /\ memory' = [memory EXCEPT ![c] = "none"]
    /\ UNCHANGED <<row, strays, answer, refunds, counted, lost>>

\* The next worker settles the journal. It may be killed before it deletes the file.
SettleJournal(c) ==
    /\ journal[c] # "none"
    /\ Store(c, journal[c])
    /\ \/ journal' = [journal EXCEPT ![c] = "none"] /\ UNCHANGED lost
       \/ journal' = journal /\ lost < MaxLost /\ lost' = lost + 1
    /\ UNCHANGED <<memory, strays, answer, refunds>>

\* A worker is killed: what it knew is unknown, as if it had not been answered.
Kill(c) ==
    /\ memory[c] # "none"
    /\ memory' = [memory EXCEPT ![c] = "none"]
    /\ answer' = [answer EXCEPT ![c] = "killed"]
    /\ UNCHANGED <<row, journal, strays, refunds, counted, lost>>

Next ==
    \/ Claim \/ Reclaim \/ Requeue \/ Expire \/ Retry
    \/ \E c \in Claims : Finish(c) \/ Commit(c) \/ Lose(c) \/ SetAside(c) \/ Refund(c) \/ End(c) \/ SettleJournal(c)
                            \/ Kill(c)
    \/ \E s \in strays : ApplyStray(s)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* Invariants. *)

\* Each attempt is counted once, and refunded once.
AttemptsCountOnce == row.attempts = Sum(counted)

\* Each acceptance is counted once.
AcceptancesCountOnce == row.accepted = Cardinality(IF row.place = "sent" THEN row.counts ELSE row.late)

\* An acceptance that a worker knows is stored, or will be: in memory, in a journal, or in a commit.
AnswerIsKept ==
    \A c \in Claims : answer[c] = "yes" =>
        \/ memory[c] = "yes" \/ journal[c] = "yes"
        \/ row.place = "sent" /\ c \in row.counts
        \/ c \in row.late

----------------------------------------------------------------------------
(* Reachable situations: each of these is violated. *)

NoLateAcceptance == ~(row.place = "sending" /\ row.late # {})
NoTwoAcceptances == row.accepted < 2
NoRepeatedRefund == ~(row.refunded # 0 /\ row.refunded \in refunds)
=============================================================================
