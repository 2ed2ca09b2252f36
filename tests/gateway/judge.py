"""Compares the gateway's log with where smsq says that messages are."""

import collections
import dataclasses

# How much later than it started a request may arrive, in seconds, apart from the stalls of the machine.
ON_THE_WAY = 0.05
# A worker that was stopped may send one message per thread when it continues.
THREADS = 2


@dataclasses.dataclass
class Approval:
    """A `retry --unknown` for one phone that has put its message back into the queue."""

    phone: str
    began: float
    ended: float


@dataclasses.dataclass
class BudgetSet:
    """From when a campaign, or with none all of them, may have this many messages accepted, and until when."""

    campaign: str | None
    messages: int
    since: float
    until: float = float("inf")


@dataclasses.dataclass
class Limit:
    """The most messages in any window of this many seconds."""

    what: str
    most: int
    window: float
    # Which entries of the log count.
    fits: object


@dataclasses.dataclass
class Rollback:
    """The database lost its commits after `copied_at`, and the commands of the documentation followed."""

    copied_at: float
    put_back_at: float
    # The place of each phone's message in the copy, and whether it was in doubt there.
    places: dict


@dataclasses.dataclass
class Evidence:
    log: list
    lookups: list
    stalls: list
    # campaign -> phones
    campaigns: dict
    # (campaign, phone) -> list of (place, provider, reference)
    places: dict
    # campaign -> state
    states: dict
    # Accounts that accept one message per reference, and those whose provider answers lookups.
    honours: set
    answers_lookups: set
    approvals: list
    budgets: list
    limits: list
    # When something happened to a worker, which may have lost an answer.
    disturbances: list
    thaws: list
    listed: set
    rollback: Rollback | None = None


@dataclasses.dataclass
class Verdict:
    findings: list = dataclasses.field(default_factory=list)
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def find(self, kind, what):
        self.counts[kind] += 1
        self.findings.append(f"{kind}: {what}")


PROMISES = ("lost", "twice", "accepted but failed", "sent but never accepted", "over budget", "over limit", "not asked", "report")


def judge(evidence):
    verdict = Verdict()
    accepted = collections.defaultdict(list)
    for entry in evidence.log:
        if entry["accepted"]:
            accepted[entry["phone"]].append(entry)
    for entries in accepted.values():
        entries.sort(key=lambda entry: entry["accepted_at"])
    verdict.counts["acceptances"] = sum(map(len, accepted.values()))
    known = set()
    for campaign, phones in evidence.campaigns.items():
        for phone in phones:
            known.add(phone)
            verdict.counts["messages"] += 1
            judge_message(evidence, verdict, campaign, phone, accepted[phone])
    for phone in accepted:
        if phone not in known:
            verdict.find("report", f"{phone} is in no list, and was accepted")
    judge_budgets(evidence, verdict)
    judge_limits(evidence, verdict)
    return verdict


def judge_message(evidence, verdict, campaign, phone, accepted):
    rows = evidence.places.get((campaign, phone), [])
    name = f"{campaign} {phone}"
    story = lambda: " | ".join(  # noqa: E731
        f"{entry['account']} {entry['ref'][-6:]} {entry['answered']}" for entry in evidence.log if entry["phone"] == phone
    )
    if not rows:
        verdict.find("lost", f"{name} is in no table")
        return
    if len(rows) > 1:
        verdict.find("report", f"{name} is in {len(rows)} places")
    place, provider, reference = rows[0]
    if place in ("queued", "sending") and evidence.states[campaign] != "cancelled":
        verdict.find("lost", f"{name} is still {place}: {story()}")
    for earlier, later in zip(accepted, accepted[1:]):
        if not is_approved(evidence, earlier, later):
            verdict.find("twice", f"{name}: {story()}")
            break
        verdict.counts["twice, asked for"] += 1
    if accepted and place in ("failed", "cancelled") and not is_forgotten(evidence, phone, accepted):
        verdict.find("accepted but failed", f"{name} is {place}: {story()}")
    if place == "sent" and not accepted:
        if is_misled(evidence, phone):
            verdict.counts["misled"] += 1
        else:
            verdict.find("sent but never accepted", f"{name}: {story()}")
    if place == "unknown":
        verdict.counts["unknown"] += 1
        verdict.counts["of these accepted"] += bool(accepted)
        if phone not in evidence.listed:
            verdict.find("report", f"{name} is unknown, and the report does not list it")
        judge_lookup(evidence, verdict, campaign, phone, provider, reference)


def judge_lookup(evidence, verdict, campaign, phone, provider, reference):
    """What the provider can be asked about was asked after the last request."""
    if evidence.rollback or evidence.states[campaign] == "cancelled" or provider not in evidence.answers_lookups:
        return
    last = max((e["at"] for e in evidence.log if e["phone"] == phone and e["account"] == provider), default=0)
    asked = [
        entry for entry in evidence.lookups
        if entry["account"] == provider and entry["at"] > last and (entry["ref"] == reference or entry["phone"] == phone)
    ]
    if asked:
        verdict.counts["asked, and still unknown"] += 1
    else:
        verdict.find("not asked", f"{campaign} {phone} is unknown, and `{provider}` was never asked")


def is_approved(evidence, earlier, later):
    """Whether an operator's command ran between two acceptances, at an account that does not honour references."""
    if earlier["account"] in evidence.honours or earlier["account"] != later["account"]:
        return False
    return any(
        approval.phone == earlier["phone"] and approval.ended > earlier["at"] and approval.began < later["at"]
        for approval in evidence.approvals
    )


def is_forgotten(evidence, phone, accepted):
    """Whether the database lost what it knew of the message: the copy has it as never started, or as failed."""
    rollback = evidence.rollback
    if not rollback or accepted[0]["at"] < rollback.copied_at - 1:
        return False
    place, in_doubt = rollback.places.get(phone, ("", False))
    return place in ("queued", "failed", "cancelled") and not in_doubt


def is_misled(evidence, phone):
    """Whether the gateway said `duplicate` about a refusal whose answer smsq may not have read."""
    entries = [entry for entry in evidence.log if entry["phone"] == phone]
    if not any(entry["answered"] == "duplicate of a refusal" for entry in entries):
        return False
    complete = ("whole", "close", "chunked")
    return any(
        entry["answered"].startswith("refused")
        and (entry["delivery"] not in complete or hides_results(entry) or any(-0.2 < at - entry["at"] < 2 for at in evidence.disturbances))
        for entry in entries
    )


def hides_results(entry):
    """Whether the message was in a request whose answer does not show the result of each one."""
    return entry["batch"] and (entry["batch_results"] not in ("whole", "order") or entry["batch_status"] >= 300)


def judge_budgets(evidence, verdict):
    for budget in evidence.budgets:
        phones = evidence.campaigns.get(budget.campaign)
        count = sum(
            1 for entry in evidence.log
            if entry["accepted"] and entry["accepted_at"] < budget.until and (phones is None or entry["phone"] in phones)
        )
        verdict.counts["budgets"] += 1
        if count > budget.messages:
            what = budget.campaign or "the month"
            verdict.find("over budget", f"{count} accepted, and the budget of {what} pays for {budget.messages}")


def judge_limits(evidence, verdict):
    until = evidence.rollback.copied_at if evidence.rollback else float("inf")
    for limit in evidence.limits:
        arrivals = sorted(e["at"] for e in evidence.log if e["at"] < until and limit.fits(e))
        first = 0
        for index, at in enumerate(arrivals):
            stalls = sum(length for end, length in evidence.stalls if at - limit.window - 0.5 < end < at + 0.05)
            length = limit.window - ON_THE_WAY - 2 * stalls
            while arrivals[first] <= at - length:
                first += 1
            count = index - first + 1
            thawed = sum(1 for thaw in evidence.thaws if at - limit.window < thaw <= at)
            if count > limit.most + THREADS * thawed and length > limit.window / 2:
                verdict.find("over limit", f"{count} messages of {limit.what} within {length:.3f} s, limit {limit.most} in {limit.window} s")
                break
