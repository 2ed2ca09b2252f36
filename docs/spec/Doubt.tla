------------------------------- MODULE Doubt -------------------------------
(* One message whose attempts may have been accepted, and its providers: what resends, status lookups, delivery receipts and
   answers about duplicates do to it. Checks that it ends only as sent or unknown unless it was certainly not accepted, that
   all attempts that may have been accepted have one reference and one provider, and that the message is accepted once.

   A provider keeps what it refused: it lists and reports the reference as not accepted at any later time, and it may
   remember the reference and answer the next attempt with it as a duplicate. That a refusal whose answer was lost or
   came too late is called a duplicate, too, is not modelled: it cannot be told from an acceptance.

   Models src/lifecycle/transition.rs: resolve, not_accepted, only_doubt, burns_reference; src/store/queue/results/transitions.rs:
   doubt_columns, unknown_to_ready; src/store/queue/claim.rs: bound_to; src/lifecycle/resend.rs: allows, end;
   src/sender/context.rs: resend_rule; src/lifecycle/retry.rs: decide; src/store/queue/unknown.rs: requeue_message, requeue_unknown;
   src/sender/lookup.rs: settle_answered, settle_not_accepted; src/provider/capabilities.rs: absence;
   src/store/receipts/inbox.rs: Proofs, settle_open.

   A request starts only under the current claim of its row, which Claim.tla checks. Time has no end: only ages are kept,
   up to the largest one that matters. *)
EXTENDS Integers, FiniteSets

CONSTANTS
    MaxClaims,
    Providers,      \* How many providers may send the message.
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
    KeepsRefused,   \* The reference stays after an attempt was refused, and a reported rejection counts for the attempt in
                    \* doubt where at most one attempt counts for retries.
    MixesAttempts,  \* A reported rejection counts for the attempt in doubt, although another attempt had its reference.
    MixesProviders, \* The report of any provider counts, of any reference of the message.
    MovesInDoubt,   \* A message in doubt goes to another provider.
    TrustsDuplicate \* "I accepted this reference before" always counts as accepted.

VARIABLES
    row,
    doubtAge, endAge, claimAge, \* Since `doubt_since`, `unknown_at` and `claimed_at`.
    request,    \* The request of each claim.
    memory,     \* The age of each accepted reference at each provider; -1: it does not know it.
    accepted,   \* How often each provider has accepted the message.
    listedAge,  \* The age of the first acceptance.
    rejected,   \* The references that each provider has rejected.
    heard       \* Those of which the worker knows that.

vars == <<row, doubtAge, endAge, claimAge, request, memory, accepted, listedAge, rejected, heard>>

Claims == 1..MaxClaims
Names == 1..Providers
Min(x, y) == IF x < y THEN x ELSE y
Ages == <<doubtAge, endAge, claimAge>>
Vendor == <<memory, accepted, listedAge, rejected, heard>>
Reused == -1
Refusals == {"again", "limited", "rejected"}

NoRequest == [phase |-> "none", age |-> 0, reference |-> 0, provider |-> 0, answer |-> "none"]
Over(r) == [r EXCEPT !.phase = "over", !.age = 0, !.answer = "none"]

Init ==
    /\ row = [state |-> "ready", claim |-> 0, inDoubt |-> FALSE, doubtClaim |-> 0, attempts |-> 0, late |-> FALSE,
               reference |-> 0, provider |-> 0, isParked |-> FALSE]
    /\ doubtAge = 0 /\ endAge = 0 /\ claimAge = 0
    /\ request = [c \in Claims |-> NoRequest]
    /\ memory = [p \in Names |-> [r \in Claims |-> -1]]
    /\ accepted = [p \in Names |-> 0] /\ listedAge = 0 /\ rejected = {} /\ heard = {}

IsAccepted == \E p \in Names : accepted[p] > 0

----------------------------------------------------------------------------
(* Decisions. *)

\* Whether a message that is in doubt since then may be sent again: the request may arrive when it times out.
MayResend(age) == IsHonoured /\ (ResendsLate \/ age < Memory - Timeout)
Allows == ~row.inDoubt \/ ChecksOnlyOnce \/ MayResend(doubtAge)

Certain(r) == [r EXCEPT !.inDoubt = FALSE, !.doubtClaim = 0]
\* An attempt was answered as not accepted, and none is in doubt: the next one gets a new reference.
Burnt(r) == IF KeepsRefused THEN Certain(r) ELSE [Certain(r) EXCEPT !.reference = 0]
To(r, state) == [r EXCEPT !.state = state]
\* An attempt was refused while another may have been accepted.
Earlier(r) == [r EXCEPT !.doubtClaim = IF KeepsRefused THEN 0 ELSE Reused]
\* The end of a message that is not sent again.
Failed(r) == IF r.inDoubt /\ ~FailsInDoubt THEN To(r, "unknown") ELSE To(Certain(r), "failed")

Doubted(r, c) ==
    [r EXCEPT !.inDoubt = TRUE, !.doubtClaim = IF @ = Reused THEN @ ELSE IF r.inDoubt THEN 0 ELSE c]

\* The row after an attempt that was not accepted, for certain or not. "limited" counts no attempt.
NotAccepted(before, c, result) ==
    LET r == [before EXCEPT !.attempts = IF result \in {"unused", "limited"} THEN @ ELSE @ + 1] IN
    CASE result = "unknown" ->
            {To(Doubted(r, c), "unknown")}
                \union IF MayResend(IF r.inDoubt THEN doubtAge ELSE claimAge) THEN {To(Doubted(r, c), "ready")} ELSE {}
      [] result = "unexplained" -> {To([Doubted(r, c) EXCEPT !.isParked = TRUE], "unknown")}
      [] result = "rejected" -> {Failed(IF r.inDoubt THEN Earlier(r) ELSE r)}
      [] result \in {"again", "limited"} -> {To(IF r.inDoubt THEN Earlier(r) ELSE Burnt(r), "ready")}
      [] result = "unused" -> {To(r, "ready")}

\* The rows that a settlement of claim c may lead to.
Resolve(r, c, result) ==
    IF result = "yes" THEN
        IF r.state = "sending" /\ r.claim # c THEN {[r EXCEPT !.late = TRUE]} ELSE {To(Certain(r), "sent")}
    ELSE IF r.state \in {"sent", "failed"} \/ r.claim # c THEN {r}
    ELSE IF r.state = "sending" /\ r.late THEN {To(Certain(r), "sent")}
    ELSE IF r.state = "sending" THEN NotAccepted(r, c, result)
    ELSE IF r.state = "unknown" /\ r.doubtClaim = c /\ result \notin {"unknown", "unexplained"}
         \* Its attempt is counted already.
         THEN NotAccepted(Certain([r EXCEPT !.attempts = @ - 1]), c, result)
    ELSE {r}

\* The ages that belong to the new row.
Aged(isAttempt) ==
    /\ doubtAge' = IF ~row'.inDoubt THEN 0 ELSE IF row.inDoubt THEN doubtAge ELSE claimAge
    /\ endAge' = IF ~row'.inDoubt THEN 0 ELSE IF isAttempt THEN 0 ELSE endAge
    /\ claimAge' = claimAge

Settle(c, result) ==
    /\ row' \in Resolve(row, c, result)
    /\ Aged(result \in {"unknown", "unexplained"} /\ row' # row)

----------------------------------------------------------------------------
Tick ==
    \* A request that has not arrived by then is lost.
    /\ \A c \in Claims : ~(request[c].phase = "onWay" /\ request[c].age >= Timeout)
    /\ doubtAge' = IF row.inDoubt THEN Min(doubtAge + 1, Memory) ELSE 0
    /\ endAge' = IF row.inDoubt THEN Min(endAge + 1, AbsentAfter) ELSE 0
    /\ claimAge' = IF row.state = "sending" THEN Min(claimAge + 1, Memory) ELSE 0
    /\ request' = [c \in Claims |-> IF request[c].phase = "onWay" THEN [request[c] EXCEPT !.age = @ + 1] ELSE request[c]]
    /\ memory' = [p \in Names |-> [r \in Claims |->
                    IF memory[p][r] < 0 \/ memory[p][r] + 1 >= Memory THEN -1 ELSE memory[p][r] + 1]]
    /\ listedAge' = IF IsAccepted THEN Min(listedAge + 1, Delay) ELSE 0
    /\ UNCHANGED <<row, accepted, rejected, heard>>

----------------------------------------------------------------------------
(* The worker. *)

\* A message in doubt goes to its provider only.
Claim(p) ==
    /\ row.state = "ready" /\ row.claim < MaxClaims
    /\ ~row.inDoubt \/ MovesInDoubt \/ row.provider = p
    /\ LET number == row.claim + 1
           reference == IF row.reference = 0 \/ NewReference THEN number ELSE row.reference IN
       IF Allows
       THEN /\ row' = [row EXCEPT !.state = "sending", !.claim = number, !.reference = reference, !.provider = p]
            /\ request' = [request EXCEPT ![number] =
                            [NoRequest EXCEPT !.phase = "claimed", !.reference = reference, !.provider = p]]
       ELSE row' = [row EXCEPT !.state = "unknown", !.claim = number] /\ UNCHANGED request
    /\ claimAge' = 0
    /\ UNCHANGED <<doubtAge, endAge, Vendor>>

Start(c) ==
    /\ request[c].phase = "claimed" /\ row.state = "sending" /\ row.claim = c
    /\ IF Allows
       THEN request' = [request EXCEPT ![c].phase = "onWay"] /\ UNCHANGED <<row, Ages>>
       ELSE request' = [request EXCEPT ![c] = Over(@)] /\ Settle(c, "unused")
    /\ UNCHANGED Vendor

\* No answer: the worker gives up, or its connection breaks. The request may still arrive.
GiveUp(c) ==
    /\ request[c].phase \in {"onWay", "answered"} /\ request[c].answer # "over"
    /\ request' = IF request[c].phase = "onWay" THEN [request EXCEPT ![c].answer = "over"] ELSE [request EXCEPT ![c] = Over(@)]
    /\ Settle(c, "unknown")
    /\ UNCHANGED Vendor

\* The worker is declared dead before it learns the result, or before the request starts.
Reclaim ==
    /\ row.state = "sending"
    /\ request' = IF request[row.claim].phase = "claimed" THEN [request EXCEPT ![row.claim] = Over(@)] ELSE request
    /\ Settle(row.claim, "unknown")
    /\ UNCHANGED Vendor

\* A duplicate proves an acceptance if an attempt with this reference is in doubt, and none was refused.
Duplicate == IF TrustsDuplicate \/ (row.inDoubt /\ row.doubtClaim # Reused) THEN "yes" ELSE "unexplained"

Receive(c) ==
    /\ request[c].phase = "answered"
    /\ LET answer == request[c].answer
           result == CASE answer = "503" -> (IF TrustsStatus THEN "again" ELSE "unknown")
                       [] answer = "duplicate" -> Duplicate
                       [] OTHER -> answer IN
       Settle(c, result)
    /\ heard' = IF request[c].answer \in Refusals /\ row' # row THEN heard \union {<<request[c].provider, request[c].reference>>} ELSE heard
    /\ request' = [request EXCEPT ![c] = Over(@)]
    /\ UNCHANGED <<memory, accepted, listedAge, rejected>>

\* The message expires, or its campaign is cancelled.
Expire ==
    /\ row.state = "ready"
    /\ row' = Failed(row)
    /\ Aged(FALSE)
    /\ UNCHANGED <<request, Vendor>>

\* A provider that honours references gets it again.
Requeue ==
    /\ row.state = "unknown" /\ ~row.isParked /\ MayResend(doubtAge)
    /\ row' = To(row, "ready")
    /\ UNCHANGED <<Ages, request, Vendor>>

----------------------------------------------------------------------------
(* The providers. *)

\* A request arrives, and is accepted or not. Then the answer is on its way, unless the worker has given up.
Arrive(c) ==
    LET p == request[c].provider
        r == request[c].reference
        isKnown == IsHonoured /\ memory[p][r] >= 0
        answered(answer) == request' = IF request[c].answer = "over" THEN [request EXCEPT ![c] = Over(@)]
                                       ELSE [request EXCEPT ![c].phase = "answered", ![c].answer = answer, ![c].age = 0] IN
    /\ request[c].phase = "onWay"
    /\ \/ isKnown /\ UNCHANGED Vendor /\ \E answer \in {"duplicate", "503"} : answered(answer)
       \* It remembers what it refused.
       \/ ~isKnown /\ IsHonoured /\ <<p, r>> \in heard /\ UNCHANGED Vendor /\ answered("duplicate")
       \/ /\ ~isKnown
          /\ memory' = [memory EXCEPT ![p][r] = 0]
          /\ accepted' = [accepted EXCEPT ![p] = @ + 1]
          /\ UNCHANGED <<listedAge, rejected, heard>>
          /\ \E answer \in {"yes", "503"} : answered(answer)
       \/ /\ ~isKnown
          /\ rejected' = rejected \union {<<p, r>>}
          /\ UNCHANGED <<memory, accepted, listedAge, heard>>
          /\ \E answer \in Refusals \union {"503"} : answered(answer)
    /\ UNCHANGED <<row, Ages>>

Vanish(c) ==
    /\ request[c].phase = "onWay"
    /\ request' = IF request[c].answer = "over" THEN [request EXCEPT ![c] = Over(@)]
                  ELSE [request EXCEPT ![c].phase = "answered", ![c].answer = "503", ![c].age = 0]
    /\ UNCHANGED <<row, Ages, Vendor>>

----------------------------------------------------------------------------
(* Lookups and receipts. *)

\* The provider reports the reference as not accepted, at any time after it has rejected an attempt with it.
Reported ==
    IF MixesProviders THEN rejected # {} ELSE <<row.provider, row.reference>> \in rejected
RejectionOfDoubt ==
    /\ Reported
    /\ IF MixesAttempts \/ MixesProviders THEN row.doubtClaim # 0
       ELSE IF KeepsRefused THEN row.doubtClaim # 0 /\ row.attempts <= 1
       ELSE row.doubtClaim > 0

\* The next attempt keeps its reference where the provider does not list the earlier one. It may report that one later.
Absent(r) == [Certain(r) EXCEPT !.doubtClaim = IF KeepsRefused \/ MixesAttempts THEN 0 ELSE Reused]

LookUp ==
    /\ row.state = "unknown"
    /\ \/ accepted[row.provider] > 0 /\ row' = To(Certain(row), "sent")
       \/ RejectionOfDoubt /\ row' \in {To(Burnt(row), "ready"), To(Certain(row), "failed")}
       \* Not found.
       \/ /\ accepted[row.provider] = 0 \/ listedAge < Delay
          /\ BelievesEarly \/ endAge >= AbsentAfter
          /\ row' \in {To(Absent(row), "ready"), To(Certain(row), "failed")}
    /\ Aged(FALSE)
    /\ UNCHANGED <<request, Vendor>>

\* A receipt names our reference. It may come at any time, and more than once.
Receipt ==
    /\ row.state \in {"unknown", "failed"}
    /\ \/ row.provider # 0 /\ accepted[row.provider] > 0 /\ row' = To(Certain(row), "sent")
       \/ row.state = "unknown" /\ RejectionOfDoubt /\ row' = To(Certain(row), "failed")
    /\ Aged(FALSE)
    /\ UNCHANGED <<request, Vendor>>

Next ==
    \/ Tick \/ Reclaim \/ Expire \/ Requeue \/ LookUp \/ Receipt
    \/ \E p \in Names : Claim(p)
    \/ \E c \in Claims : Start(c) \/ GiveUp(c) \/ Receive(c) \/ Arrive(c) \/ Vanish(c)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* Invariants. *)

\* Whether an attempt was accepted, or may still be.
MayBeAccepted == IsAccepted \/ \E c \in Claims : request[c].phase = "onWay"

\* The providers together accept the message at most once.
AcceptedOnce == \A p, q \in Names : accepted[p] + (IF p = q THEN 0 ELSE accepted[q]) <= 1

\* What may have been accepted does not fail, and is not queued without doubt.
FailedWasNotAccepted == row.state = "failed" => ~MayBeAccepted
CertainWasNotAccepted == row.state = "ready" /\ ~row.inDoubt => ~MayBeAccepted

SentWasAccepted == row.state = "sent" => IsAccepted

\* All requests that may still be accepted go to one provider with one reference.
ReferenceIsKept ==
    \A c, d \in Claims : request[c].phase = "onWay" /\ request[d].phase \in {"claimed", "onWay"} =>
        request[c].reference = request[d].reference /\ request[c].provider = request[d].provider

----------------------------------------------------------------------------
(* Reachable situations: each of these is violated. *)

NoResendInDoubt == ~(row.inDoubt /\ IsAccepted /\ \E c \in Claims : request[c].phase = "onWay")
NoArrivalAfterDoubt == ~(row.state = "unknown" /\ \E c \in Claims : request[c].phase = "onWay" /\ request[c].answer = "over")
NoLateAnswer == ~(row.state = "unknown" /\ \E c \in Claims : request[c].answer = "yes")
NoMove == ~(\E c, d \in Claims : request[c].provider # 0 /\ request[d].provider \notin {0, request[c].provider})
NoNewReference == ~(\E c \in Claims : request[c].phase # "none" /\ request[c].reference # 0 /\ request[c].reference # 1)
=============================================================================
