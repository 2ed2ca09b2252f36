------------------------------- MODULE Doubt -------------------------------
(* One message whose attempts may have been accepted, and the provider: what resends, status lookups and delivery receipts
   do to it. Checks that it ends only as sent or unknown unless it was certainly not accepted, that its reference does not
   change, and that the provider accepts it once.

   Models src/queue/transition.rs: resolve, not_accepted, is_only_attempt; src/store/transitions.rs: doubt_columns;
   src/queue/resend.rs: allows, end; src/sender/context.rs: resend_rule; src/queue/retry.rs: decide;
   src/store/unknown.rs: requeue_message, requeue_unknown; src/sender/lookup.rs: settle_answered, settle_not_accepted;
   src/provider/capabilities.rs: absence; src/store/receipts.rs: proves, settle_open.

   A request starts only under the current claim of its row, which Claim.tla checks. Time has no end: only ages are kept,
   up to the largest one that matters. *)
EXTENDS Integers, FiniteSets

CONSTANTS
    MaxClaims,
    Timeout,        \* A request arrives within this time after its start, or never.
    Delay,          \* How long after an acceptance the provider lists it at the latest.
    AbsentAfter,    \* How long after the last attempt "not found" proves that there was none.
    Memory,         \* How long the provider remembers a reference.
    IsHonoured      \* It accepts one message per reference.

CONSTANTS \* Each is FALSE in a correct specification.
    TrustsStatus,   \* A status such as 503 counts as certainly not accepted, although the provider accepted before it.
    ResendsLate,    \* It is sent again however long ago the first attempt was.
    ChecksOnlyOnce, \* The time is checked when the message is queued, not when it is claimed and when it starts.
    BelievesEarly,  \* "Not found" proves at once that the provider has none of the attempts.
    NewReference,   \* Each claim has a new reference.
    FailsInDoubt,   \* A message in doubt fails when a later attempt is rejected, it expires or is cancelled.
    MixesAttempts   \* A reported rejection counts for the attempt in doubt, although there was an earlier attempt.

VARIABLES
    row,
    doubtAge, endAge, claimAge, \* Since `doubt_since`, `unknown_at` and `claimed_at`.
    request,    \* The request of each claim.
    memory,     \* The age of each reference at the provider; -1: it does not know it.
    accepted,   \* How often it has accepted the message.
    listedAge,  \* The age of the first acceptance.
    rejected    \* The claims that it has rejected.

vars == <<row, doubtAge, endAge, claimAge, request, memory, accepted, listedAge, rejected>>

Claims == 1..MaxClaims
Min(x, y) == IF x < y THEN x ELSE y
Ages == <<doubtAge, endAge, claimAge>>
Vendor == <<memory, accepted, listedAge, rejected>>

NoRequest == [phase |-> "none", age |-> 0, reference |-> 0, answer |-> "none"]
Over == [NoRequest EXCEPT !.phase = "over"]

Init ==
    /\ row = [state |-> "ready", claim |-> 0, inDoubt |-> FALSE, doubtClaim |-> 0, attempts |-> 0, late |-> FALSE,
               reference |-> 0]
    /\ doubtAge = 0 /\ endAge = 0 /\ claimAge = 0
    /\ request = [c \in Claims |-> NoRequest]
    /\ memory = [r \in Claims |-> -1]
    /\ accepted = 0 /\ listedAge = 0 /\ rejected = {}

----------------------------------------------------------------------------
(* Decisions. *)

\* Whether a message that is in doubt since then may be sent again: the request may arrive when it times out.
MayResend(age) == IsHonoured /\ (ResendsLate \/ age < Memory - Timeout)
Allows == ~row.inDoubt \/ ChecksOnlyOnce \/ MayResend(doubtAge)

Certain(r) == [r EXCEPT !.inDoubt = FALSE, !.doubtClaim = 0]
To(r, state) == [r EXCEPT !.state = state]
\* The end of a message that is not sent again.
Failed(r) == IF r.inDoubt /\ ~FailsInDoubt THEN To([r EXCEPT !.doubtClaim = 0], "unknown") ELSE To(Certain(r), "failed")

\* The row after an attempt that was not accepted, for certain or not.
NotAccepted(before, c, result) ==
    LET r == [before EXCEPT !.attempts = IF result = "unused" THEN @ ELSE @ + 1] IN
    CASE result = "unknown" ->
            LET doubted == [r EXCEPT !.inDoubt = TRUE, !.doubtClaim = IF r.inDoubt THEN 0 ELSE c] IN
            {To(doubted, "unknown")}
                \union IF MayResend(IF r.inDoubt THEN doubtAge ELSE claimAge) THEN {To(doubted, "ready")} ELSE {}
      [] result = "rejected" -> {Failed(r)}
      [] result = "again" -> {To(IF r.inDoubt THEN [r EXCEPT !.doubtClaim = 0] ELSE r, "ready")}
      [] result = "unused" -> {To(r, "ready")}

\* The rows that a settlement of claim c may lead to.
Resolve(r, c, result) ==
    IF result = "yes" THEN
        IF r.state = "sending" /\ r.claim # c THEN {[r EXCEPT !.late = TRUE]} ELSE {To(Certain(r), "sent")}
    ELSE IF r.state \in {"sent", "failed"} \/ r.claim # c THEN {r}
    ELSE IF r.state = "sending" /\ r.late THEN {To(Certain(r), "sent")}
    ELSE IF r.state = "sending" THEN NotAccepted(r, c, result)
    ELSE IF r.state = "unknown" /\ r.doubtClaim = c /\ result # "unknown"
         \* Its attempt is counted already.
         THEN NotAccepted(Certain([r EXCEPT !.attempts = @ - 1]), c, result)
    ELSE {r}

\* The ages that belong to the new row.
Doubted(isAttempt) ==
    /\ doubtAge' = IF ~row'.inDoubt THEN 0 ELSE IF row.inDoubt THEN doubtAge ELSE claimAge
    /\ endAge' = IF ~row'.inDoubt THEN 0 ELSE IF isAttempt THEN 0 ELSE endAge
    /\ claimAge' = claimAge

Settle(c, result) ==
    /\ row' \in Resolve(row, c, result)
    /\ Doubted(result = "unknown" /\ row' # row)

----------------------------------------------------------------------------
Tick ==
    \* A request that has not arrived by then is lost.
    /\ \A c \in Claims : ~(request[c].phase = "onWay" /\ request[c].age >= Timeout)
    /\ doubtAge' = IF row.inDoubt THEN Min(doubtAge + 1, Memory) ELSE 0
    /\ endAge' = IF row.inDoubt THEN Min(endAge + 1, AbsentAfter) ELSE 0
    /\ claimAge' = IF row.state = "sending" THEN Min(claimAge + 1, Memory) ELSE 0
    /\ request' = [c \in Claims |-> IF request[c].phase = "onWay" THEN [request[c] EXCEPT !.age = @ + 1] ELSE request[c]]
    /\ memory' = [r \in Claims |-> IF memory[r] < 0 \/ memory[r] + 1 >= Memory THEN -1 ELSE memory[r] + 1]
    /\ listedAge' = IF accepted > 0 THEN Min(listedAge + 1, Delay) ELSE 0
    /\ UNCHANGED <<row, accepted, rejected>>

----------------------------------------------------------------------------
(* The worker. *)

Claim ==
    /\ row.state = "ready" /\ row.claim < MaxClaims
    /\ LET number == row.claim + 1
           reference == IF row.reference = 0 \/ NewReference THEN number ELSE row.reference IN
       IF Allows
       THEN /\ row' = [row EXCEPT !.state = "sending", !.claim = number, !.reference = reference]
            /\ request' = [request EXCEPT ![number] = [NoRequest EXCEPT !.phase = "claimed", !.reference = reference]]
       ELSE row' = [row EXCEPT !.state = "unknown", !.claim = number] /\ UNCHANGED request
    /\ claimAge' = 0
    /\ UNCHANGED <<doubtAge, endAge, Vendor>>

Start(c) ==
    /\ request[c].phase = "claimed" /\ row.state = "sending" /\ row.claim = c
    /\ IF Allows
       THEN request' = [request EXCEPT ![c].phase = "onWay"] /\ UNCHANGED <<row, Ages>>
       ELSE request' = [request EXCEPT ![c] = Over] /\ Settle(c, "unused")
    /\ UNCHANGED Vendor

\* No answer: the worker gives up, or its connection breaks. The request may still arrive.
GiveUp(c) ==
    /\ request[c].phase \in {"onWay", "answered"} /\ request[c].answer # "over"
    /\ request' = IF request[c].phase = "onWay" THEN [request EXCEPT ![c].answer = "over"] ELSE [request EXCEPT ![c] = Over]
    /\ Settle(c, "unknown")
    /\ UNCHANGED Vendor

\* The worker is declared dead before it learns the result, or before the request starts.
Reclaim ==
    /\ row.state = "sending"
    /\ request' = IF request[row.claim].phase = "claimed" THEN [request EXCEPT ![row.claim] = Over] ELSE request
    /\ Settle(row.claim, "unknown")
    /\ UNCHANGED Vendor

Receive(c) ==
    /\ request[c].phase = "answered"
    /\ LET answer == request[c].answer
           result == IF answer = "503" THEN (IF TrustsStatus THEN "again" ELSE "unknown") ELSE answer IN
       Settle(c, result)
    /\ request' = [request EXCEPT ![c] = Over]
    /\ UNCHANGED Vendor

\* The message expires, or its campaign is cancelled.
Expire ==
    /\ row.state = "ready"
    /\ row' = Failed(row)
    /\ Doubted(FALSE)
    /\ UNCHANGED <<request, Vendor>>

\* A provider that honours references gets it again.
Requeue ==
    /\ row.state = "unknown" /\ MayResend(doubtAge)
    /\ row' = To(row, "ready")
    /\ UNCHANGED <<Ages, request, Vendor>>

----------------------------------------------------------------------------
(* The provider. *)

\* A request arrives, and is accepted or not. Then the answer is on its way, unless the worker has given up.
Arrive(c) ==
    LET r == request[c].reference
        isKnown == IsHonoured /\ memory[r] >= 0
        answered(answer) == request' = IF request[c].answer = "over" THEN [request EXCEPT ![c] = Over]
                                       ELSE [request EXCEPT ![c].phase = "answered", ![c].answer = answer, ![c].age = 0] IN
    /\ request[c].phase = "onWay"
    /\ \/ isKnown /\ UNCHANGED Vendor /\ \E answer \in {"yes", "503"} : answered(answer)
       \/ /\ ~isKnown
          /\ memory' = [memory EXCEPT ![r] = 0]
          /\ accepted' = accepted + 1
          /\ UNCHANGED <<listedAge, rejected>>
          /\ \E answer \in {"yes", "503"} : answered(answer)
       \/ /\ ~isKnown
          /\ rejected' = rejected \union {c}
          /\ UNCHANGED <<memory, accepted, listedAge>>
          /\ \E answer \in {"again", "rejected", "503"} : answered(answer)
    /\ UNCHANGED <<row, Ages>>

Vanish(c) ==
    /\ request[c].phase = "onWay"
    /\ request' = IF request[c].answer = "over" THEN [request EXCEPT ![c] = Over]
                  ELSE [request EXCEPT ![c].phase = "answered", ![c].answer = "503", ![c].age = 0]
    /\ UNCHANGED <<row, Ages, Vendor>>

----------------------------------------------------------------------------
(* Lookups and receipts. *)

\* The provider reports the reference as not accepted, at any time after it has rejected an attempt.
RejectionOfDoubt == row.doubtClaim # 0 /\ rejected # {} /\ (MixesAttempts \/ row.attempts <= 1)

LookUp ==
    /\ row.state = "unknown"
    /\ \/ accepted > 0 /\ row' = To(Certain(row), "sent")
       \/ RejectionOfDoubt /\ row' \in {To(Certain(row), "ready"), To(Certain(row), "failed")}
       \* Not found.
       \/ /\ accepted = 0 \/ listedAge < Delay
          /\ BelievesEarly \/ endAge >= AbsentAfter
          /\ row' \in {To(Certain(row), "ready"), To(Certain(row), "failed")}
    /\ Doubted(FALSE)
    /\ UNCHANGED <<request, Vendor>>

\* A receipt names our reference. It may come at any time, and more than once.
Receipt ==
    /\ row.state \in {"unknown", "failed"}
    /\ \/ accepted > 0 /\ row' = To(Certain(row), "sent")
       \/ row.state = "unknown" /\ RejectionOfDoubt /\ row' = To(Certain(row), "failed")
    /\ Doubted(FALSE)
    /\ UNCHANGED <<request, Vendor>>

Next ==
    \/ Tick \/ Claim \/ Reclaim \/ Expire \/ Requeue \/ LookUp \/ Receipt
    \/ \E c \in Claims : Start(c) \/ GiveUp(c) \/ Receive(c) \/ Arrive(c) \/ Vanish(c)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* Invariants. *)

\* Whether an attempt was accepted, or may still be.
MayBeAccepted == accepted > 0 \/ \E c \in Claims : request[c].phase = "onWay"

\* The provider accepts the message at most once.
AcceptedOnce == accepted <= 1

\* What may have been accepted does not fail, and is not queued without doubt.
FailedWasNotAccepted == row.state = "failed" => ~MayBeAccepted
CertainWasNotAccepted == row.state = "ready" /\ ~row.inDoubt => ~MayBeAccepted

SentWasAccepted == row.state = "sent" => accepted > 0

\* All requests have the same reference.
ReferenceIsKept ==
    \A c, d \in Claims : request[c].reference # 0 /\ request[d].reference # 0 => request[c].reference = request[d].reference

----------------------------------------------------------------------------
(* Reachable situations: each of these is violated. *)

NoResendInDoubt == ~(row.inDoubt /\ accepted > 0 /\ \E c \in Claims : request[c].phase = "onWay")
NoArrivalAfterDoubt == ~(row.state = "unknown" /\ \E c \in Claims : request[c].phase = "onWay" /\ request[c].answer = "over")
NoLateAnswer == ~(row.state = "unknown" /\ \E c \in Claims : request[c].answer = "yes")
=============================================================================
