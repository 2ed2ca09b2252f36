------------------------------ MODULE Rollback ------------------------------
(* One message, a worker that writes marks, and a database that is put back to an earlier state: by a restore, or because a
   standby takes over that is behind. Checks that the message is not sent twice, and that it is not taken for one that was
   never sent.

   Models the count of commits (src/store/commit_count.rs: raise, check_count), the header and the slots of the marks
   (src/sender/marks.rs: confirm, is_ahead_of, of_ended), and claims that are made again (src/store/lost_claims.rs: redo).
   The commits of the worker are atomic here; see Claim.tla. *)
EXTENDS Integers

CONSTANTS
    MaxClaims,
    MaxRollbacks

CONSTANTS \* Each is FALSE in a correct specification.
    IgnoresCount,   \* Neither the worker nor the reader of its marks compares the number of its commits.
    KeepsLost       \* Claims that the database has lost are not made again.

VARIABLES
    db,         \* What the database has: the message, and the worker's count.
    saved,      \* What it had at an earlier instant.
    process,    \* What the worker does; "ended": its process is gone.
    known,      \* How many commits it knows to be stored, in its memory and in the header of its marks.
    claim,      \* The claim that it works on.
    marks,      \* The slots: of each claim what was written last.
    forgotten,  \* The claims whose slots were used for others since.
    sent,       \* How often a request was sent: the provider accepts each one.
    result,     \* What the worker knows of its request.
    rollbacks

vars == <<db, saved, process, known, claim, marks, forgotten, sent, result, rollbacks>>

Claims == 1..MaxClaims

TypeOK ==
    /\ db.state \in {"ready", "sending", "unknown", "sent"} /\ db.claim \in 0..MaxClaims
    /\ process \in {"idle", "claimed", "marked", "written", "answered", "ended"}
    /\ marks \in [Claims -> {"none", "begun", "yes"}]

Init ==
    /\ db = [state |-> "ready", claim |-> 0, commits |-> 0]
    /\ saved = db
    /\ process = "idle"
    /\ known = 0 /\ claim = 0
    /\ marks = [c \in Claims |-> "none"]
    /\ forgotten = {}
    /\ sent = 0 /\ rollbacks = 0
    /\ result = "none"

----------------------------------------------------------------------------
(* The worker. *)

IsCounted == IgnoresCount \/ db.commits = known
Counted(row) == [row EXCEPT !.commits = @ + 1]

Claim ==
    /\ process = "idle" /\ IsCounted /\ db.state = "ready" /\ db.claim < MaxClaims
    /\ db' = Counted([db EXCEPT !.state = "sending", !.claim = @ + 1])
    /\ known' = known + 1
    /\ claim' = db.claim + 1
    /\ process' = "claimed"
    /\ UNCHANGED <<saved, marks, forgotten, sent, result, rollbacks>>

Mark ==
    /\ process = "claimed"
    /\ marks' = [marks EXCEPT ![claim] = "begun"]
    /\ process' = "marked"
    /\ UNCHANGED <<db, saved, known, claim, forgotten, sent, result, rollbacks>>

Write ==
    /\ process = "marked"
    /\ sent' = sent + 1
    /\ process' = "written"
    /\ UNCHANGED <<db, saved, known, claim, marks, forgotten, result, rollbacks>>

Receive ==
    /\ process = "written"
    /\ marks' = [marks EXCEPT ![claim] = "yes"]
    /\ process' = "answered"
    /\ UNCHANGED <<db, saved, known, claim, forgotten, sent, result, rollbacks>>

Settle ==
    /\ process = "answered" /\ IsCounted
    /\ db' = Counted([db EXCEPT !.state = "sent"])
    /\ known' = known + 1
    /\ process' = "idle"
    /\ UNCHANGED <<saved, claim, marks, forgotten, sent, result, rollbacks>>

\* The slot of a settled claim is used for another message.
Reuse ==
    /\ process = "idle" /\ claim # 0 /\ claim \notin forgotten
    /\ marks' = [marks EXCEPT ![claim] = "none"]
    /\ forgotten' = forgotten \union {claim}
    /\ UNCHANGED <<db, saved, process, known, claim, sent, result, rollbacks>>

\* It is killed, or stops because its count differs.
End ==
    /\ process # "ended"
    /\ process' = "ended"
    /\ UNCHANGED <<db, saved, known, claim, marks, forgotten, sent, result, rollbacks>>

----------------------------------------------------------------------------
(* The database. *)

Save ==
    /\ saved' = db
    /\ UNCHANGED <<db, process, known, claim, marks, forgotten, sent, result, rollbacks>>

Rollback ==
    /\ rollbacks < MaxRollbacks
    /\ db' = saved
    /\ rollbacks' = rollbacks + 1
    /\ UNCHANGED <<saved, process, known, claim, marks, forgotten, sent, result>>

----------------------------------------------------------------------------
(* The next worker of the host, which reads the marks once before it claims anything. *)

IsAhead == ~IgnoresCount /\ known > db.commits

Lost == {c \in Claims : marks[c] # "none" /\ c > db.claim}
Newest == CHOOSE c \in Lost : \A other \in Lost : other <= c
By(mark) == IF mark = "yes" THEN "sent" ELSE "unknown"

Reclaim ==
    /\ process = "ended" /\ result = "none"
    /\ result' = "read"
    /\ db' = CASE IsAhead /\ ~KeepsLost /\ Lost # {} /\ db.state \in {"ready", "sending"} ->
                    [db EXCEPT !.state = By(marks[Newest]), !.claim = Newest]
               [] db.state = "sending" /\ marks[db.claim] # "none" -> [db EXCEPT !.state = By(marks[db.claim])]
               [] db.state = "sending" /\ IsAhead -> [db EXCEPT !.state = "unknown"]
               [] db.state = "sending" -> [db EXCEPT !.state = "ready"]
               [] OTHER -> db
    /\ UNCHANGED <<saved, process, known, claim, marks, forgotten, sent, rollbacks>>

SendAgain ==
    /\ result = "read" /\ db.state = "ready"
    /\ db' = [db EXCEPT !.state = "sent"]
    /\ sent' = sent + 1
    /\ UNCHANGED <<saved, process, known, claim, marks, forgotten, result, rollbacks>>

Next ==
    \/ Claim \/ Mark \/ Write \/ Receive \/ Settle \/ Reuse \/ End
    \/ (result = "none" /\ (Save \/ Rollback))
    \/ Reclaim \/ SendAgain

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------

\* What no file has is not known: the message was queued in the state to which the database was put back, and its slot was
\* used for another message.
IsKnown == forgotten = {} \/ saved.state # "ready"

NotSentTwice == sent > 1 => ~IsKnown

SentWasAccepted == db.state = "sent" => sent > 0

\* Reached in the correct model: a message that was settled, and whose slot is used for another one, is unknown after the
\* rollback.
NoForgottenSlot == ~(forgotten # {} /\ result = "read" /\ db.state = "unknown")

\* A claim that the database had lost gets its result.
NoRedoneClaim == ~(result = "read" /\ rollbacks > 0 /\ saved.state = "ready" /\ db.state = "sent" /\ sent = 1)
=============================================================================
