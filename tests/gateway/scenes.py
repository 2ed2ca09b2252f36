"""Scenes: what must hold at the edge of the assumptions, each played the same way every time.

Each prints its figures, and `ok` or `BAD`. What was accepted is counted at the gateway.
"""

import collections
import os
import signal
import time

from gateway import Act, BatchAct, Gateway, lost, ok, refuse
from program import Failed, Provider, Site, configuration

SCENES = {}


def scene(name, engines=("sqlite", "postgres", "mariadb")):
    def add(play):
        SCENES[name] = (play, engines)
        return play

    return add


class Stage:
    """What a scene plays on: a gateway, a site, and its figures."""

    def __init__(self, engine, folder, name):
        self.folder = folder
        self.engine = engine
        self.name = name
        self.parts = 0
        self.databases = []
        self.gateways = []
        self.sites = []

    def part(self):
        """A new gateway and a new site: scenes have several parts."""
        self.parts += 1
        if self.gateways:
            self.gateways[-1].stop()
        folder = os.path.join(self.folder, f"part{self.parts}")
        os.makedirs(folder)
        database = self.engine(folder, f"{self.name}_{self.parts}")
        self.databases.append(database)
        self.gateways.append(Gateway(self.name))
        self.sites.append(Site(folder, database))
        return self.gateways[-1], self.sites[-1]

    def close(self):
        if self.gateways:
            self.gateways[-1].stop()
        for database in self.databases:
            database.drop()


def phones(count, first=0):
    return [f"+4474001{first + index:05}" for index in range(count)]


def accepted_twice(gateway):
    """How many phones were accepted more than once."""
    counts = collections.Counter(entry["phone"] for entry in gateway.accepted())
    return sum(1 for count in counts.values() if count > 1)


def states(site):
    """The phones by the place of their message: `queued`, `sending`, `unknown`, `sent`, `failed` or `cancelled`."""
    found = collections.defaultdict(set)
    for phone, state in site.database.query("SELECT phone, state FROM sms_message"):
        found[state].add(phone)
    return found


def accepted_but(site, gateway, *places):
    """How many phones were accepted, and are in one of these places."""
    accepted = {entry["phone"] for entry in gateway.accepted()}
    found = states(site)
    return len(accepted & set().union(*(found[place] for place in places)))


def send(site, *more, codes=(0, 1, 3), patience=120):
    return site.must("send", "--yes", "--quiet", *more, codes=codes, patience=patience)


def wait_until(what, condition, patience=60):
    deadline = time.time() + patience
    while not condition():
        if time.time() > deadline:
            raise Failed(f"not in {patience} s: {what}")
        time.sleep(0.005)


ROUTE = """
[routes.main]
else = "a"
fallback = ["b"]
fallback_after = "50ms"
"""


def two_providers(gateway, site, a_policy, b_policy, **more):
    a, b = gateway.add("a", a_policy), gateway.add("b", b_policy)
    sections = [Provider("a", a.url, **more), Provider("b", b.url, **more)]
    site.write("smsq.toml", configuration(sections, ROUTE, default="main"))
    return a, b


def first_then(first, then=None):
    """A policy: the first attempt of each message, and the later ones."""
    return lambda message, attempt, account: first if attempt == 1 else (then or ok())


def at_once(act):
    return lambda message, attempt, account: act


# An answer that does not say what happened.


@scene("redirect-after-acceptance")
def redirect_after_acceptance(stage):
    """The gateway accepts and answers with a redirect; then its settings are right, and it is sent again."""
    figures, is_ok = {}, True
    for status in (302, 303, 300, 304):
        gateway, site = stage.part()
        a = gateway.add("a", first_then(Act(True, status, None)))
        site.write("smsq.toml", configuration([Provider("a", a.url)]))
        site.import_list("c", phones(6))
        send(site)
        send(site)
        twice = accepted_twice(gateway)
        failed = accepted_but(site, gateway, "failed", "cancelled")
        figures[str(status)] = f"{twice} of 6 twice, {failed} failed"
        is_ok = is_ok and twice == failed == 0
    return figures, is_ok


@scene("redirect-after-acceptance-on-a-route")
def redirect_on_a_route(stage):
    gateway, site = stage.part()
    two_providers(gateway, site, at_once(Act(True, 302, None)), at_once(ok()))
    site.import_list("c", phones(40))
    ran = send(site)
    twice = accepted_twice(gateway)
    counts = site.status("c")
    figures = {"twice": f"{twice} of 40", "exit": ran.code, "sent": counts["sent"], "unknown": counts["unknown"]}
    return figures, twice == 0


@scene("one-provider-refuses-and-the-other-recovers")
def other_recovers(stage):
    """`a` refuses the account all the time, and `b` loses the answers to its first messages, then is well again."""
    gateway, site = stage.part()
    seen = set()

    def recovers(message, attempt, account):
        seen.add(message["to"])
        return lost() if len(seen) <= 24 else ok()

    two_providers(gateway, site, at_once(refuse(402, "no_credit")), recovers)
    site.import_list("c", phones(40))
    ran = site.run("send", "--yes", "--quiet", patience=60)
    counts = site.status("c")
    figures = {"exit": ran.code, "sent": counts["sent"], "unknown": counts["unknown"], "queued": counts["queued"],
               "twice": accepted_twice(gateway)}
    return figures, ran.code == 1 and counts["queued"] == 0 and accepted_twice(gateway) == 0


@scene("doubtful-statuses")
def doubtful_statuses(stage):
    """Statuses that do not say what became of the message."""
    figures, is_ok = {}, True
    for status in (409, 418, 421, 425, 499, 501, 505):
        gateway, site = stage.part()
        a = gateway.add("a", first_then(Act(True, status, None)))
        site.write("smsq.toml", configuration([Provider("a", a.url)]))
        site.import_list("c", phones(4))
        send(site)
        send(site)
        twice = accepted_twice(gateway)
        failed = accepted_but(site, gateway, "failed")
        figures[str(status)] = f"{twice} twice, {failed} failed"
        is_ok = is_ok and twice == failed == 0
    return figures, is_ok


@scene("batch-error-incomplete")
def batch_error_incomplete(stage):
    """An error answer to a batch that has accepted and rejected entries, whole and incomplete."""
    figures, is_ok = {}, True
    for delivery in ("whole", "cut", "slow", "large"):
        gateway, site = stage.part()

        def fate(message, attempt, account):
            return refuse(200, "invalid") if attempt == 1 and message["to"].endswith("7") else ok()

        def answer(messages, random, delivery=delivery):
            return BatchAct(400, "whole", delivery) if len(messages) > 1 else BatchAct()

        a = gateway.add("a", fate, answer)
        site.write("smsq.toml", configuration([Provider("a", a.url, batch=8)], concurrency=2))
        site.import_list("c", phones(60))
        ran = send(site)
        twice = accepted_twice(gateway)
        failed = accepted_but(site, gateway, "failed")
        figures[delivery] = f"{twice} of 60 twice, {failed} accepted but failed, exit {ran.code}"
        is_ok = is_ok and twice == failed == 0
    return figures, is_ok


@scene("batch-error-without-results")
def batch_error_without_results(stage):
    """An error answer to a batch that was accepted: without some results, with one twice, or as a page of a proxy."""
    figures, is_ok = {}, True
    for name, results, delivery in (
        ("missing", "missing", "whole"), ("double", "double", "whole"), ("page", "whole", "not_json"),
    ):
        for status in (400, 422):
            gateway, site = stage.part()
            chosen = set()

            def fate(message, attempt, account, chosen=chosen):
                return ok() if message["to"] in chosen else refuse(200, "invalid")

            def answer(messages, random, chosen=chosen, status=status, results=results, delivery=delivery):
                if len(messages) == 1:
                    chosen.add(messages[0]["to"])
                    return BatchAct()
                # The one whose result the answer does not show.
                chosen.add(messages[0 if results == "double" else -1]["to"])
                return BatchAct(status, results, delivery)

            a = gateway.add("a", fate, answer)
            site.write("smsq.toml", configuration([Provider("a", a.url, batch=4)], concurrency=1))
            site.import_list("c", phones(40))
            send(site)
            twice = accepted_twice(gateway)
            failed = accepted_but(site, gateway, "failed")
            figures[f"{name} {status}"] = f"{twice} twice, {failed} accepted but failed"
            is_ok = is_ok and twice == failed == 0
    return figures, is_ok


@scene("single-error-incomplete")
def single_error_incomplete(stage):
    """A cut error answer to one message, whose code would have said that it was accepted."""
    figures, is_ok = {}, True
    for delivery in ("cut", "slow", "chunked_cut"):
        gateway, site = stage.part()
        a = gateway.add("a", first_then(Act(True, 400, "duplicate", delivery)))
        site.write("smsq.toml", configuration([Provider("a", a.url)]))
        site.import_list("c", phones(6))
        send(site)
        failed = accepted_but(site, gateway, "failed")
        figures[delivery] = f"{failed} of 6 accepted but failed"
        is_ok = is_ok and failed == 0
    return figures, is_ok


@scene("second-answer")
def second_answer(stage):
    """The gateway answers twice on a kept connection: the second answer is taken for that of the next message."""
    gateway, site = stage.part()

    def fate(message, attempt, account):
        return Act(True, delivery="second") if message["to"].endswith("3") else ok()

    a = gateway.add("a", fate)
    site.write("smsq.toml", configuration([Provider("a", a.url)], concurrency=1))
    site.import_list("c", phones(12))
    send(site)
    failed = accepted_but(site, gateway, "failed")
    return {"accepted but failed": f"{failed} of 12"}, failed == 0


# What a refusal leaves behind.


@scene("refused-then-lost-with-receipts")
def refused_then_lost_receipts(stage):
    """The first attempt is refused, the second accepted and its answer lost; receipts list the first as rejected."""
    figures, is_ok = {}, True
    for name, first in (
        ("429", refuse(429, None, headers={"Retry-After": "0"})),
        ("402", refuse(402, None)),
        ("no credit", refuse(200, "no_credit")),
    ):
        gateway, site = stage.part()
        a = gateway.add("a", first_then(first, lost()))
        a.lists = "first"
        site.write("smsq.toml", configuration([Provider("a", a.url, receipts=True)]))
        site.import_list("c", phones(8))
        for _ in range(4):
            send(site)
        wait_until("unknown messages", lambda: site.status("c")["queued"] == 0 or send(site))
        time.sleep(1.2)
        site.must("receipts")
        failed = accepted_but(site, gateway, "failed")
        twice = accepted_twice(gateway)
        accepted = len({entry["phone"] for entry in gateway.accepted()})
        figures[name] = f"{failed} of {accepted} accepted but failed, {twice} twice"
        is_ok = is_ok and failed == twice == 0
    return figures, is_ok


@scene("refused-then-lost-with-lookups")
def refused_then_lost_lookups(stage):
    """The same, where lookups list the refusal: with the acceptance behind it, or alone."""
    figures, is_ok = {}, True
    for lists in ("in order", "first"):
        gateway, site = stage.part()
        policy = lambda message, attempt, account: (  # noqa: E731
            refuse(402, "no_credit") if attempt == 1 else lost() if attempt == 2 else ok()
        )
        a = gateway.add("a", policy)
        a.lists = lists
        site.write("smsq.toml", configuration([Provider("a", a.url, lookup="reference")]))
        site.import_list("c", phones(8))
        for _ in range(12):
            ran = send(site)
            if ran.code != 3:
                break
        twice, failed = accepted_twice(gateway), accepted_but(site, gateway, "failed")
        counts = site.status("c")
        figures[f"lists {lists}"] = (
            f"{twice} of 8 twice, {failed} accepted but failed, exit {ran.code}, sent {counts['sent']}, "
            f"unknown {counts['unknown']}"
        )
        is_ok = is_ok and twice == failed == 0
    return figures, is_ok


@scene("duplicate-answer-of-a-refusal")
def duplicate_of_refusal(stage):
    """The account has no credit, and the gateway remembers the references of what it refused, as idempotency keys do."""
    figures, is_ok = {}, True
    for remembers in ("duplicate", "replay"):
        gateway, site = stage.part()
        a = gateway.add("a", at_once(ok()))
        a.honours, a.remembers, a.mode = True, remembers, "refused"
        site.write("smsq.toml", configuration([Provider("a", a.url, honours=True)]))
        site.import_list("c", phones(20))
        send(site)
        a.mode = "open"
        stops = 0
        for _ in range(4):
            ran = send(site)
            if ran.code != 3:
                break
            stops += 1
        accepted = {entry["phone"] for entry in gateway.accepted()}
        wrong = len(states(site)["sent"] - accepted)
        figures[remembers] = f"{wrong} of 20 sent and never accepted, {len(accepted)} accepted, stopped again {stops} times, exit {ran.code}"
        is_ok = is_ok and wrong == 0 and stops == 0 and len(accepted) == 20
    return figures, is_ok


@scene("doubt-of-one-provider-on-a-route")
def doubt_on_a_route(stage):
    """Messages that `b` may have accepted, which honours references; then their campaign is sent by the route, `a` first."""
    gateway, site = stage.part()
    a, b = two_providers(gateway, site, at_once(ok()), at_once(lost()), honours=True)
    b.honours = True
    site.import_list("c", phones(20))

    def send_until(count):
        worker = site.start("send", "--yes", "--quiet")
        wait_until("requests", lambda: len(gateway.log) >= count)
        worker.signal(signal.SIGTERM)
        worker.ended()

    # The route divides the messages: they are those of `a`.
    a.mode = b.mode = "down"
    send_until(1)
    b.mode = "open"
    site.must("set", "c", "--provider", "b")
    send_until(len(gateway.log) + 4)
    site.must("set", "c", "--provider", "main")
    a.mode, b.policy = "open", at_once(ok())
    ran = site.run("send", "--yes", "--quiet", patience=60)
    counts = site.status("c")
    figures = {"exit": ran.code, "sent": counts["sent"], "unknown": counts["unknown"], "queued": counts["queued"],
               "twice": accepted_twice(gateway)}
    return figures, ran.code == 0 and counts["sent"] == 20 and accepted_twice(gateway) == 0


@scene("refusal-repeated-for-ever")
def refusal_repeated(stage):
    """The answer to a refusal is lost, and the gateway repeats the refusal whenever it sees that reference."""
    gateway, site = stage.part()
    a = gateway.add("a", at_once(refuse(200, "down", delivery="nothing")))
    a.honours, a.remembers = True, "replay"
    site.write("smsq.toml", configuration([Provider("a", a.url, honours=True)]))
    site.import_list("c", phones(6))
    ran = site.run("send", "--yes", "--quiet", patience=60)
    counts = site.status("c")
    figures = {"exit": ran.code, "unknown": counts["unknown"], "queued": counts["queued"]}
    return figures, ran.code == 1 and counts["unknown"] == 6


@scene("receipt-of-the-other-provider")
def receipt_of_the_other(stage):
    """One provider refuses and lists the message as rejected; the other one accepts it, and its answer is lost."""
    gateway, site = stage.part()

    def of_a(message, attempt, account):
        return ok() if message["to"].endswith("0") else refuse(402, "no_credit")

    def of_b(message, attempt, account):
        return lost() if int(message["to"]) % 4 == 1 else ok()

    a, b = two_providers(gateway, site, of_a, of_b, receipts=True)
    # Only `a` says something.
    b.lists = "nothing"
    site.import_list("c", phones(61))
    send(site)
    time.sleep(1.2)
    ran = site.must("receipts", codes=(0, 1))
    accepted = {entry["phone"] for entry in gateway.accepted("b")}
    failed = accepted_but(site, gateway, "failed")
    figures = {"accepted by b but failed": f"{failed} of {len(accepted)}", "says": ran.stderr.strip().splitlines()[:2]}
    return figures, failed == 0 and len(accepted) > 0


@scene("receipts-on-two-pages")
def receipts_on_two_pages(stage):
    """The request has a placeholder, and the answer the URL of the second page."""
    gateway, site = stage.part()
    a = gateway.add("a", at_once(ok()))
    site.write("smsq.toml", configuration([Provider("a", a.url, receipts="since")]))
    site.import_list("c", phones(20))
    send(site)
    time.sleep(1.2)
    ran = site.run("receipts")
    delivered = site.status("c")["delivery"]["delivered"]
    return {"delivered": f"{delivered} of 20", "exit": ran.code}, delivered == 20


# Who is asked.


def with_doubt(stage, senders=(), **more):
    """A site with unknown messages, whose provider has no lookups yet."""
    gateway, site = stage.part()
    a = gateway.add("a", first_then(lost()))
    section = Provider("a", a.url, senders=list(senders), **more)
    site.write("smsq.toml", configuration([section]))
    site.import_list("c", phones(9))
    for _ in range(4):
        if send(site).code != 3 and site.status("c")["queued"] == 0:
            break
    return gateway, site, a, section


def asked(gateway, site):
    before = site.status("c")["unknown"]
    ran = send(site)
    left = site.status("c")["unknown"]
    figures = f"{left} of {before} stay unknown, {len(gateway.lookups)} lookups, exit {ran.code}"
    return figures, before > 0 and left == 0 and accepted_twice(gateway) == 0


@scene("lookups-after-changes")
def lookups_after_changes(stage):
    """A sender is switched off or removed, a pool or a route is added: unknown messages are looked up all the same."""
    figures, good = {}, []

    def note(name, result):
        figures[name] = result[0]
        good.append(result[1])

    pool = [("one", None), ("two", None)]
    gateway, site, _, section = with_doubt(stage, pool)
    section.lookup = "reference"
    site.write("smsq.toml", configuration([section]))
    site.must("set", "--sender", "two", "off", "--provider", "a")
    note("sender off", asked(gateway, site))

    gateway, site, _, section = with_doubt(stage, pool)
    section.lookup, section.senders = "reference", pool[:1]
    site.write("smsq.toml", configuration([section]))
    note("sender removed", asked(gateway, site))

    gateway, site, _, section = with_doubt(stage)
    section.lookup, section.senders = "reference", pool
    site.write("smsq.toml", configuration([section]))
    note("pool added", asked(gateway, site))

    gateway, site, _, section = with_doubt(stage)
    section.lookup = "reference"
    b = gateway.add("b", at_once(ok()))
    site.write("smsq.toml", configuration([section, Provider("b", b.url)], ROUTE))
    site.must("set", "--campaign", "c", "--provider", "main")
    note("route added", asked(gateway, site))
    return figures, all(good)


@scene("approved-resend-during-an-outage")
def approved_resend(stage):
    """`retry --unknown` while the provider that has the messages is down: the other one must not get them."""
    gateway, site = stage.part()
    a, b = two_providers(gateway, site, at_once(lost()), at_once(ok()), honours=True)
    a.honours = b.honours = True
    a.remembers = "replay"
    sections = [Provider("a", a.url, honours=True), Provider("b", b.url, honours=True)]
    site.write("smsq.toml", configuration(sections, ROUTE, default="main", retry="max_attempts = 1"))
    site.import_list("c", phones(10))
    send(site)
    site.must("set", "--campaign", "c", "--priority", "0")
    accepted = len(gateway.accepted("a"))
    gateway.close("a")
    retried = site.must("retry", "--unknown", "--campaign", "c", "--format", "json", codes=(0, 1)).json["retried"]
    worker = site.start("send", "--yes", "--quiet", "--no-wait")
    time.sleep(4)
    worker.signal(signal.SIGTERM)
    worker.ended()
    both = accepted_twice(gateway)
    figures = {"accepted by a": accepted, "retried": retried, "also by b": both}
    return figures, both == 0


# The past of the database.


def being_sent(stage, count=800, wait=0.1):
    """A worker in the middle of a campaign."""
    gateway, site = stage.part()
    a = gateway.add("a", at_once(ok(wait)))
    site.write("smsq.toml", configuration([Provider("a", a.url, timeout="3s")], concurrency=8))
    site.import_list("c", phones(count))
    return gateway, site, a


@scene("backup-restored-after-a-kill")
def backup_restored(stage):
    """A backup is made while a worker sends, the worker is killed, and the backup put back, as documented."""
    figures, is_ok = {}, True
    for name in ("sent again", "cancelled first"):
        gateway, site, a = being_sent(stage)
        send_now = site.start("send", "--yes", "--quiet")
        wait_until("requests", lambda: len(gateway.log) > 20)
        site.database.backup("backup")
        sending = {row[0] for row in site.database.query_backup("backup", "SELECT phone FROM sms WHERE state = 1")}
        wait_until("the answers", lambda: sending <= {e["phone"] for e in gateway.accepted()}, 20)
        time.sleep(0.3)
        send_now.kill()
        site.database.restore("backup")
        site.settle_files()
        a.policy = at_once(ok())
        if name == "cancelled first":
            site.must("cancel", "c")
            site.import_list("rest", phones(5, 5000))
        send(site)
        counts = collections.Counter(entry["phone"] for entry in gateway.accepted())
        twice = sum(1 for phone in sending if counts[phone] > 1)
        wrong = len((states(site)["cancelled"] | states(site)["failed"]) & sending & set(counts))
        figures[name] = f"{len(sending)} were being sent: {twice} sent twice, {wrong} failed or cancelled"
        is_ok = is_ok and sending and twice == wrong == 0
    return figures, bool(is_ok)


@scene("standby-one-second-old", engines=("postgres",))
def standby(stage):
    """The worker's database is replaced by a copy that is a second old, as a failover to a standby does it."""
    gateway, site = stage.part()
    a = gateway.add("a", at_once(ok(0.005)))
    site.write("smsq.toml", configuration([Provider("a", a.url)], concurrency=16))
    site.import_list("c", phones(4000))
    worker = site.start("send", "--yes", "--quiet")
    wait_until("messages", lambda: len(gateway.log) > 200)
    site.database.backup("standby")
    copied = len(gateway.log)
    wait_until("more messages", lambda: len(gateway.log) > copied + 100)
    time.sleep(1)
    site.database.replace("standby")
    swapped = len(gateway.log)
    ran = worker.ended()
    checked = site.run("check", "--offline")
    site.settle_files()
    again = send(site)
    twice, reached = accepted_twice(gateway), len({entry["phone"] for entry in gateway.accepted()})
    figures = {
        "sent between copy and failover": swapped - copied, "exit": ran.code, "check": checked.code,
        "after the files are settled": again.code, "reached": f"{reached} of 4000", "twice": twice,
        "says": ran.stderr.strip().splitlines()[-1:],
    }
    return figures, ran.code == 3 and (reached, twice) == (4000, 0)


@scene("file-replaced-under-a-worker", engines=("sqlite",))
def file_replaced(stage):
    """Another file is put into the place of the database, while a worker has the old one open."""
    gateway, site = stage.part()
    a = gateway.add("a", at_once(ok(0.01)))
    site.write("smsq.toml", configuration([Provider("a", a.url, rate="100/s")], concurrency=8))
    site.import_list("c", phones(400))
    site.database.backup("backup")
    worker = site.start("send", "--yes", "--quiet")
    wait_until("messages", lambda: len(gateway.log) > 20)
    site.database.replace("backup")
    replaced = len(gateway.log)
    ran = worker.ended()
    after = len(gateway.log) - replaced
    refused = site.run("send", "--yes", "--quiet")
    site.settle_files()
    again = site.run("send", "--yes", "--quiet")
    twice, reached = accepted_twice(gateway), len({entry["phone"] for entry in gateway.accepted()})
    figures = {
        "sent after that": after, "exit": ran.code, "before the files are settled": refused.code,
        "after that": again.code, "reached": f"{reached} of 400", "twice": twice,
        "says": ran.stderr.strip().splitlines()[-1:],
    }
    return figures, (ran.code, refused.code) == (3, 2) and (reached, twice) == (400, 0)


# Money.

PRICE = 0.04


@scene("budget-set-while-sending")
def budget_set_while_sending(stage):
    figures, is_ok = {}, True
    for index in range(3):
        gateway, site = stage.part()
        a = gateway.add("a", at_once(ok()))
        site.write("smsq.toml", configuration([Provider("a", a.url)], prices=PRICE, concurrency=64))
        site.import_list("c", phones(2500))
        worker = site.start("send", "--yes", "--quiet")
        wait_until("messages", lambda: len(gateway.log) > 300 + index * 100)
        pays = len(gateway.log) + 500
        ran = site.run("set", "--campaign", "c", "--budget", f"{pays * PRICE:.2f}EUR")
        worker.ended()
        accepted = len(gateway.accepted())
        over = max(0, accepted - pays) if ran.code == 0 else 0
        figures[str(index + 1)] = f"{accepted} accepted for {pays}, over by {over}" + ("" if ran.code == 0 else ", refused")
        is_ok = is_ok and over == 0
    return figures, is_ok


@scene("budget-after-one-of-the-month")
def budget_after_month(stage):
    """Messages are sent without a budget, some under a monthly one, and then the campaign gets one of its own."""
    gateway, site = stage.part()
    a = gateway.add("a", at_once(ok()))
    section = Provider("a", a.url)
    site.write("smsq.toml", configuration([section], prices=PRICE))
    site.import_list("c", phones(100))
    send(site)
    site.write("smsq.toml", configuration([section], prices=PRICE, limits='budget = ["1000 EUR/month"]'))
    site.import_list("c", phones(10, 1000))
    send(site)
    site.must("set", "--campaign", "c", "--budget", f"{130 * PRICE:.2f}EUR")
    site.import_list("c", phones(200, 2000))
    send(site)
    accepted = len(gateway.accepted())
    return {"accepted": accepted, "paid for": 130}, accepted <= 130


@scene("price-of-zero")
def price_of_zero(stage):
    """The provider writes price 0 into its answers, as queues do that bill later."""
    gateway, site = stage.part()
    a = gateway.add("a", at_once(ok()))
    a.price = lambda message: "0"
    site.write("smsq.toml", configuration([Provider("a", a.url, price="a")], prices=PRICE))
    site.import_list("c", phones(200))
    site.must("set", "--campaign", "c", "--budget", f"{20 * PRICE:.2f}EUR")
    ran = send(site)
    accepted = len(gateway.accepted())
    return {"accepted": accepted, "paid for": 20, "exit": ran.code}, accepted <= 20
