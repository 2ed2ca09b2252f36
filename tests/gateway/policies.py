"""What the gateway does with messages at random, reproducible by seed, phone and attempt."""

import dataclasses

from gateway import Act, BatchAct, lost, ok, refuse

# After these an application may have the message, whatever the router or the form in front of it answers.
DOUBTFUL = (300, 302, 303, 304, 408, 409, 418, 421, 425, 499, 500, 501, 502, 503, 504, 505, 520)
# With these nothing was accepted, by their specification.
ACCOUNT = (401, 402, 403, 404, 405, 406, 410, 415, 426, 301, 307, 308)
BREAKS = ("nothing", "reset", "late", "cut", "slow", "large", "chunked_cut", "half_line", "garbage", "not_json")
# Answers to refusals that break off, too: certainly nothing was accepted, but the answer does not say so.
BROKEN_REFUSALS = ("nothing", "cut", "late", "chunked_cut")


@dataclasses.dataclass
class Faults:
    """How often the gateway does what. `share` is the part of messages that are not simply accepted."""

    share: float = 0.3
    # Statuses that count as certainly not accepted, by the provider's documentation: never after an acceptance.
    certain: tuple = ()
    # A single answer that refuses the account, outside of outages.
    accounts: float = 0.02
    throttles: float = 0.02
    # Redirects are accepted messages, too.
    redirects: bool = True
    # The answer to the next message is already there.
    second_answers: float = 0.0
    latency: tuple = (0.0, 0.03)


def random_policy(faults):
    def act(message, attempt, account):
        random = account.gateway.random_of(account.name, message.get("to"), attempt)
        wait = random.uniform(*faults.latency)
        if random.random() < faults.second_answers:
            return Act(True, 200, delivery="second", wait=wait)
        if random.random() >= faults.share:
            return ok(wait, random.choice((200, 200, 200, 201, 202)))
        draw = random.random()
        if draw < 0.3:
            # Accepted, and the status does not say so.
            statuses = [s for s in DOUBTFUL if s not in faults.certain and (faults.redirects or s >= 400)]
            code = random.choice((None, None, "strange_code")) if random.random() < 0.5 else None
            return Act(True, random.choice(statuses), code, random.choice(("whole", "whole", "close", "cut")), wait=wait)
        if draw < 0.58:
            later = random.uniform(0.1, 0.8) if random.random() < 0.2 else 0.0
            return Act(True, 200, delivery=random.choice(BREAKS), accept_after=later, wait=wait)
        if draw < 0.62:
            return Act(True, 200, delivery="chunked", wait=wait)
        if draw < 0.62 + faults.throttles:
            return refuse(429, None, headers={"Retry-After": random.choice(("0", "1"))})
        if draw < 0.64 + faults.accounts:
            return refuse(random.choice(ACCOUNT), None, wait=wait)
        if draw < 0.74:
            return refuse(random.choice((200, 400, 503)), "down", wait=wait)
        if draw < 0.84:
            return refuse(random.choice((200, 400, 422)), "invalid", wait=wait)
        if draw < 0.88:
            return refuse(random.choice((400, 422, 413, 451)), random.choice((None, "unlisted")), wait=wait)
        if draw < 0.93 and faults.certain:
            return refuse(random.choice(faults.certain), None, wait=wait)
        return refuse(200, "down", delivery=random.choice(BROKEN_REFUSALS), wait=wait)

    return act


def random_batch_policy(faults):
    def act(messages, random):
        if random.random() >= faults.share:
            return BatchAct(results=random.choice(("whole", "whole", "order")))
        draw = random.random()
        if draw < 0.15:
            return BatchAct(400, refused="batch_rejected")
        status = random.choice((200, 200, 202, 400, 422, 500, 503, 302, 409))
        if status in faults.certain or (len(messages) == 1 and status in (400, 422)):
            # With these nothing of the request was accepted; of several messages they may be about a part.
            status = 200
        if draw < 0.45:
            return BatchAct(status, random.choice(("missing", "double", "order", "whole")))
        if draw < 0.55:
            return BatchAct(random.choice((200, 500, 502)), "none")
        return BatchAct(status, "whole", random.choice(BREAKS))

    return act


def scripted(**by_attempt):
    """A policy by the attempt of a message: `scripted(first=refuse(429), then=ok())`."""

    def act(message, attempt, account):
        return by_attempt["first"] if attempt == 1 else by_attempt["then"]

    return act


__all__ = ["Faults", "random_policy", "random_batch_policy", "scripted", "Act", "BatchAct", "ok", "lost", "refuse"]
