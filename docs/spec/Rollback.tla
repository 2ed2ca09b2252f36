------------------------------ MODULE Rollback ------------------------------
(* One message, workers that write marks, and a database that is put back to an earlier state: by a restore, or because a
   standby takes over that is behind. Checks that the message is not accepted twice, and that it is not taken for one that
   was never accepted. The files of several workers may be read in any order.

   Models the count of commits (src/store/queue/commit_count.rs: raise, check_count), the header and the slots of the marks
   (src/sender/local_files/marks.rs: confirm, is_ahead_of, of_ended), and claims that are made again (src/store/queue/lost_claims.rs: redo).
   The commits of the workers are atomic here; see Claim.tla. *)
EXTENDS Integers

CONSTANTS
    MaxClaims,
    MaxRollbacks

CONSTANTS \* Each is FALSE in a correct specification.
    IgnoresCount,   \* Neither the worker nor the reader of its marks compares the number of its commits.
    KeepsLost,      \* Claims that the database has lost are not made again.
    KeepsRegistered \* They are not made again where the database has the message as sending by a registered worker.

VARIABLES
    db,         \* What the database has: the message, and the worker's count.
    saved,      \* What it had at an earlier instant.
    process,    \* What the worker does; "ended": its process is gone.
    known,      \* How many commits it knows to be stored, in its memory and in the header of its marks.
    claim,      \* The claim that it works on.
    marks,      \* The slots: of each claim what was written last.
    forgotten,  \* The claims whose slots were used for others since.
    response,   \* What the provider answers to the request: "yes" or "no".
    sent,       \* How many requests the provider accepted.
    read,       \* The claims whose marks the next worker has read.
    result,     \* "read": it has read all of them.
    rollbacks

vars == <<db, saved, process, known, claim, marks, forgotten, response, sent, read, result, rollbacks>>

Claims == 1..MaxClaims

TypeOK ==
    /\ db.state \in {"ready", "sending", "unknown", "sent"} /\ db.claim \in 0..MaxClaims
    /\ process \in {"idle", "claimed", "marked", "written", "answered", "ended"}
    /\ marks \in [Claims -> {"none", "begun", "yes", "no"}]

Init ==
    /\ db = [state |-> "ready", claim |-> 0, commits |-> 0]
    /\ saved = db
    /\ process = "idle"
    /\ known = 0 /\ claim = 0
    /\ marks = [c \in Claims |-> "none"]
    /\ forgotten = {}
    /\ sent = 0 /\ rollbacks = 0
    /\ response = "no" /\ read = {} /\ result = "none"

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
    /\ UNCHANGED <<saved, marks, forgotten, response, sent, read, result, rollbacks>>

Mark ==
    /\ process = "claimed"
    /\ marks' = [marks EXCEPT ![claim] = "begun"]
    /\ process' = "marked"
    /\ UNCHANGED <<db, saved, known, claim, forgotten, response, sent, read, result, rollbacks>>

Write ==
    /\ process = "marked"
    /\ \/ response' = "yes" /\ sent' = sent + 1
       \/ response' = "no" /\ sent' = sent
    /\ process' = "written"
    /\ UNCHANGED <<db, saved, known, claim, marks, forgotten, read, result, rollbacks>>

Receive ==
    /\ process = "written"
    /\ marks' = [marks EXCEPT ![claim] = response]
    /\ process' = "answered"
    /\ UNCHANGED <<db, saved, known, claim, forgotten, response, sent, read, result, rollbacks>>

Settle ==
    /\ process = "answered" /\ IsCounted
    /\ db' = Counted([db EXCEPT !.state = IF response = "yes" THEN "sent" ELSE "ready"])
    /\ known' = known + 1
    /\ process' = "idle"
    /\ UNCHANGED <<saved, claim, marks, forgotten, response, sent, read, result, rollbacks>>

\* The slot of a settled claim is used for another message.
Reuse ==
    /\ process = "idle" /\ claim # 0 /\ claim \notin forgotten
    /\ marks' = [marks EXCEPT ![claim] = "none"]
    /\ forgotten' = forgotten \union {claim}
    /\ UNCHANGED <<db, saved, process, known, claim, response, sent, read, result, rollbacks>>

\* It is killed, or stops because its count differs.
End ==
    /\ process # "ended"
    /\ process' = "ended"
    /\ UNCHANGED <<db, saved, known, claim, marks, forgotten, response, sent, read, result, rollbacks>>

----------------------------------------------------------------------------
(* The database. *)

Save ==
    /\ saved' = db
    /\ UNCHANGED <<db, process, known, claim, marks, forgotten, response, sent, read, result, rollbacks>>

Rollback ==
    /\ rollbacks < MaxRollbacks
    /\ db' = saved
    /\ rollbacks' = rollbacks + 1
    /\ UNCHANGED <<saved, process, known, claim, marks, forgotten, response, sent, read, result>>

----------------------------------------------------------------------------
(* The next worker of the host, which reads the marks once before it claims anything. Each claim may be of another worker,
   so its mark is in a file of its own. *)

IsAhead == ~IgnoresCount /\ known > db.commits

\* A lost claim came after the one that the database has.
IsLost(c) ==
    /\ IsAhead /\ ~KeepsLost /\ c > db.claim
    /\ db.state = "ready" \/ (db.state = "sending" /\ ~KeepsRegistered)

\* A refusal does not settle a message that another worker may have sent.
By(mark, is_contested) ==
    CASE mark = "yes" -> "sent"
      [] mark = "no" /\ ~is_contested -> "ready"
      [] OTHER -> "unknown"

Read(c) ==
    /\ process = "ended" /\ result = "none"
    /\ c \notin read /\ marks[c] # "none"
    /\ read' = read \union {c}
    /\ db' = CASE IsLost(c) -> [db EXCEPT !.state = By(marks[c], db.state = "sending"), !.claim = c]
               [] db.state = "sending" /\ db.claim = c -> [db EXCEPT !.state = By(marks[c], FALSE)]
               [] marks[c] = "yes" /\ db.state \in {"ready", "unknown"} -> [db EXCEPT !.state = "sent"]
               [] OTHER -> db
    /\ UNCHANGED <<saved, process, known, claim, marks, forgotten, response, sent, result, rollbacks>>

Reclaim ==
    /\ process = "ended" /\ result = "none"
    /\ \A c \in Claims : marks[c] # "none" => c \in read
    /\ result' = "read"
    /\ db' = IF db.state = "sending"
             THEN [db EXCEPT !.state = IF IsAhead THEN "unknown" ELSE "ready"]
             ELSE db
    /\ UNCHANGED <<saved, process, known, claim, marks, forgotten, response, sent, read, rollbacks>>

SendAgain ==
    /\ result = "read" /\ db.state = "ready"
    /\ db' = [db EXCEPT !.state = "sent"]
    /\ sent' = sent + 1
    /\ UNCHANGED <<saved, process, known, claim, marks, forgotten, response, read, result, rollbacks>>

Next ==
    \/ Claim \/ Mark \/ Write \/ Receive \/ Settle \/ Reuse \/ End
    \/ (result = "none" /\ read = {} /\ (Save \/ Rollback))
    \/ (\E c \in Claims : Read(c)) \/ Reclaim \/ SendAgain

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------

\* What no file has is not known: the slot of a claim was used for another message, and the database was put back to a
\* state before it.
IsKnown == \A c \in forgotten : saved.claim >= c

NotSentTwice == sent > 1 => ~IsKnown

SentWasAccepted == db.state = "sent" => sent > 0

\* Reached in the correct model: a message that was settled, and whose slot is used for another one, is unknown after the
\* rollback.
NoForgottenSlot == ~(forgotten # {} /\ result = "read" /\ db.state = "unknown")

\* A claim that the database had lost gets its result.
NoRedoneClaim == ~(result = "read" /\ rollbacks > 0 /\ saved.state = "ready" /\ db.state = "sent" /\ sent = 1)
=============================================================================
