"""Random rounds: a configuration, workers, what happens to them, operators' commands, and the verdict."""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from gateway import Gateway
from judge import PROMISES, Approval, BudgetSet, Evidence, Limit, Rollback, judge
from policies import Faults, random_batch_policy, random_policy
from program import ENGINES, WITH_PARENT, Failed, Provider, Site, configuration

PRICE = 0.03
# How long the last worker may send, in seconds, on a busy machine.
LAST_WORKER = 120
# A round whose gateway did not run for this part of the time says nothing about what has not ended.
STARVED = 0.3
COLUMNS = (
    "rounds", "messages", "kills", "stops", "commands", "rollbacks", "acceptances", "lost", "twice",
    "accepted but failed", "sent but never accepted", "over budget", "over limit", "not asked", "report",
    "twice, asked for", "unknown", "of these accepted", "asked, and still unknown", "second answers", "starved",
)
ROUTE = """
[routes.main]
first = [{ prefix = ["44"], provider = "a", share = SHARE }, { prefix = ["44"], provider = "b", share = REST }]
else = "a"
fallback = ["a", "b"]
fallback_after = "50ms"
"""


@dataclasses.dataclass
class Features:
    """What an account of the gateway does, and its section says."""

    honours: bool
    remembers: str
    lookup: str | None
    receipts: bool | str
    keeps_refused: bool
    certain: tuple


class Round:
    def __init__(self, seed, engine, folder):
        self.random = random.Random(f"round {seed}")
        self.seed = seed
        self.database = ENGINES[engine](folder, f"round_{seed}_{os.getpid()}")
        self.site = Site(folder, self.database)
        self.gateway = Gateway(seed)
        self.workers = []
        self.tally = collections.Counter(rounds=1)
        self.approvals, self.budgets, self.disturbances, self.thaws = [], [], [], []
        self.rollback = None
        self.history = []
        self.draw()

    def note(self, what):
        self.history.append(f"{time.time():.3f} {what}")

    # The configuration.

    def draw(self):
        chance = self.random.random
        pick = self.random.choice
        self.incident = self.draw_incident()
        self.has_route = chance() < 0.5
        self.has_pool = chance() < 0.3
        self.batch = pick((4, 10)) if chance() < 0.25 else 0
        self.has_second_answers = chance() < 0.04
        self.rate = None if self.batch else pick((None, 50, 80))
        self.campaign_rate = pick((None, None, 40)) if not self.batch else None
        self.sender_rate = pick((None, 25)) if self.has_pool and not self.batch else None
        self.budget_kind = pick((None, None, None, "first", "later", "later", "month"))
        self.prices_in_answers = self.budget_kind is not None and chance() < 0.5
        self.faults = Faults(
            share=self.random.uniform(0.1, 0.45), second_answers=0.02 if self.has_second_answers else 0.0,
            latency=pick(((0.0, 0.02), (0.0, 0.05), (0.05, 0.3))),
        )
        self.share = pick((50, 80, 100))
        self.pool = ["s0", "s1", "s2"] if self.has_pool else []
        self.removed = False
        self.features = {name: self.draw_features() for name in ("a", "b")[: 1 + self.has_route]}
        self.concurrency = pick((4, 8, 16))
        self.expires = chance() < 0.1 and not self.incident

    def draw_incident(self):
        draw = self.random.random()
        if draw < 0.14:
            return "restore"
        if draw < 0.26:
            return {"SQLite": "replace", "PostgreSQL": "standby"}.get(self.database.name, "restore")
        return None

    def draw_features(self):
        chance = self.random.random
        honours = chance() < 0.3
        return Features(
            honours=honours,
            remembers=self.random.choice(("nothing", "duplicate", "replay")) if honours else "nothing",
            lookup=self.random.choice((None, "reference", "reference", "phone")) if not honours else None,
            receipts=self.random.choice((False, False, True, "since")),
            keeps_refused=chance() < 0.8,
            certain=(503,) if chance() < 0.2 else (),
        )

    def configure(self):
        sections = []
        for name, features in self.features.items():
            account = self.gateway.accounts[name]
            sections.append(Provider(
                name, account.url, honours=features.honours, lookup=features.lookup, receipts=features.receipts,
                batch=self.batch, rate=self.rate and f"{self.rate}/s", certain=features.certain,
                senders=[(sender, self.sender_rate and f"{self.sender_rate}/s") for sender in self.pool],
                price="yes" if self.prices_in_answers else None,
            ))
        route = ""
        if self.has_route:
            shares = ROUTE.replace("SHARE", str(self.share)).replace("REST", str(max(100 - self.share, 1)))
            route = shares
        limits = f'budget = ["{self.month * PRICE:.2f} EUR/month"]' if self.month else ""
        self.site.write("smsq.toml", configuration(
            sections, route, limits, PRICE if self.budget_kind else None, "main" if self.has_route else "a",
            self.concurrency, retry=self.retry,
        ))

    def prepare(self):
        for name, features in self.features.items():
            faults = dataclasses.replace(self.faults, certain=features.certain)
            account = self.gateway.add(name, random_policy(faults), random_batch_policy(faults))
            account.honours, account.remembers = features.honours, features.remembers
            account.keeps_refused = features.keeps_refused
            account.late = 0.9
            if self.prices_in_answers:
                account.price = lambda message: "0" if message["to"][-1] in "37" else f"{PRICE}"
        self.month = None
        # A refusal that is repeated for ever settles nothing: attempts must end.
        is_endless = all(features.remembers == "nothing" for features in self.features.values())
        self.retry = self.random.choice(("", "max_attempts = 2", "max_attempts = 0" if is_endless else ""))
        count = self.random.randint(50, 100)
        base = self.seed * 1000 % 100_000
        self.campaigns = {
            name: [f"+447400{base + index * count + row:06}" for row in range(count)]
            for index, name in enumerate(("spring", "summer"))
        }
        if self.budget_kind == "month":
            self.month = int(count * self.random.uniform(0.8, 1.6))
            self.budgets.append(BudgetSet(None, self.month, time.time()))
        self.configure()
        for name, phones in self.campaigns.items():
            more = ["--expires", "+4s"] if self.expires and name == "summer" else []
            self.site.import_list(name, phones, *more)
            if self.campaign_rate:
                self.site.must("set", name, "--rate", f"{self.campaign_rate}/s")
        if self.budget_kind == "first":
            self.set_budget("spring")

    # What operators do.

    def command(self, *line):
        self.tally["commands"] += 1
        self.note(" ".join(line))
        return self.site.run(*line, patience=60)

    def set_budget(self, campaign):
        own = set(self.campaigns[campaign])
        accepted = sum(1 for entry in self.gateway.accepted() if entry["phone"] in own)
        pays = min(len(own) - 1, accepted + self.random.randint(2, 40))
        ran = self.command("set", campaign, "--budget", f"{pays * PRICE:.2f}EUR")
        if ran.code == 0:
            for budget in self.budgets:
                if budget.campaign == campaign:
                    budget.until = min(budget.until, ran.began)
            self.budgets.append(BudgetSet(campaign, pays, ran.ended))

    def approve_unknown(self):
        unknown = self.database.query("SELECT phone FROM sms WHERE state = 2")
        for (phone,) in self.random.sample(unknown, min(3, len(unknown))):
            ran = self.command("retry", "--unknown", "--phone", phone, "--format", "json")
            try:
                retried = ran.json["retried"]
            except (ValueError, KeyError):
                continue
            if retried:
                self.approvals.append(Approval(phone, ran.began, ran.ended))

    def operate(self):
        campaign = self.random.choice(list(self.campaigns))
        commands = [
            lambda: self.command("pause", campaign),
            lambda: self.command("resume", campaign),
            lambda: self.command("resume", campaign),
            lambda: self.command("retry", "--campaign", campaign),
            self.approve_unknown,
            self.approve_unknown,
            lambda: self.command("receipts"),
            lambda: self.command("status"),
        ]
        if self.has_route:
            target = self.random.choice(("main", "a", "b"))
            commands += [lambda: self.command("set", campaign, "--provider", target)] * 3
        if self.pool:
            name = self.random.choice(list(self.features))
            state = self.random.choice(("off", "on"))
            # The first one stays on.
            sender = self.random.choice(("s1", "s2"))
            commands += [lambda: self.command("set", "--sender", sender, state, "--provider", name)] * 3
            commands.append(self.remove_sender)
        if self.campaign_rate:
            rate = self.random.choice((self.campaign_rate, self.campaign_rate // 2))
            commands.append(lambda: self.command("set", campaign, "--rate", f"{rate}/s"))
        if self.budget_kind == "later":
            commands += [lambda: self.set_budget(campaign)] * 3
        if self.random.random() < 0.03:
            commands = [lambda: self.command("cancel", campaign)]
        self.random.choice(commands)()

    def remove_sender(self):
        """Takes the last sender out of the configuration: workers that start from now on do not have it."""
        if len(self.pool) > 2:
            self.note("sender removed from the configuration")
            self.pool.pop()
            self.configure()

    # What happens to workers and accounts.

    def keep_workers(self, count):
        for worker in [worker for worker in self.workers if not worker.is_running]:
            self.workers.remove(worker)
            worker.ended()
        while len(self.workers) < count:
            self.workers.append(self.site.start("send", "--yes", "--quiet"))

    def disturb(self):
        running = [worker for worker in self.workers if worker.is_running]
        draw = self.random.random()
        if draw < 0.35:
            self.operate()
        elif draw < 0.55 and running:
            worker = self.random.choice(running)
            self.disturbances.append(time.time())
            self.note(f"kill {worker.process.pid}")
            worker.signal(signal.SIGKILL)
            self.tally["kills"] += 1
        elif draw < 0.68 and running:
            worker = self.random.choice(running)
            self.note(f"stop {worker.process.pid}")
            self.disturbances.append(time.time())
            worker.stop()
            time.sleep(self.random.uniform(0.05, 0.9))
            worker.resume()
            self.thaws.append(time.time())
            self.disturbances.append(time.time())
            self.tally["stops"] += 1
        elif draw < 0.75 and running:
            self.note("terminate")
            self.random.choice(running).signal(signal.SIGTERM)
            self.tally["stops"] += 1
        elif draw < 0.9:
            account = self.gateway.accounts[self.random.choice(list(self.features))]
            mode = self.random.choice(("refused", "down", "closed"))
            self.note(f"account {account.name} {mode}")
            if mode == "closed":
                self.gateway.close(account.name)
            else:
                account.mode = mode
            threading.Timer(self.random.uniform(0.1, 0.7), self.heal, (account,)).start()

    def heal(self, account):
        account.mode = "open"
        self.gateway.open(account.name)

    def chaos(self, seconds):
        until = time.time() + seconds
        count = self.random.choice((1, 2, 2, 3))
        while time.time() < until:
            self.keep_workers(count)
            time.sleep(self.random.uniform(0.02, 0.25))
            self.disturb()

    def kill_all(self):
        for worker in self.workers:
            worker.kill()
        self.workers = []

    # The database loses commits.

    def copied_places(self):
        sql = "SELECT phone, state, in_doubt FROM sms UNION ALL SELECT phone, -1, false FROM sms_sent " \
            "UNION ALL SELECT phone, -2, false FROM sms_failed"
        names = {"0": "queued", "1": "sending", "2": "unknown", "-1": "sent", "-2": "failed"}
        rows = self.database.query_backup("backup", sql)
        truth = ("1", "t", "True", "true")
        return {phone: (names[str(state)], str(doubt) in truth) for phone, state, doubt in rows}

    def lose_commits(self):
        """Makes a copy while workers run, goes on, and puts the copy in the place of the database."""
        self.tally["rollbacks"] += 1
        self.keep_workers(1)
        copied_at = time.time()
        self.note("copy")
        self.database.backup("backup")
        places = self.copied_places()
        if self.incident == "restore":
            self.chaos(self.random.uniform(0.3, 1.5))
            self.note("kill all and restore")
            self.kill_all()
            self.database.restore("backup")
            put_back_at = time.time()
        else:
            # One worker: one that has committed nothing since the copy has no means to notice.
            for worker in self.workers[1:]:
                worker.kill()
            self.workers = self.workers[:1]
            self.keep_workers(1)
            time.sleep(self.random.uniform(0.3, 1.2))
            self.note(self.incident)
            worker = self.workers[0]
            was_running = worker.is_running
            self.database.replace("backup")
            put_back_at = time.time()
            self.workers = []
            if was_running:
                ran = worker.ended(20)
                last = max((entry["at"] for entry in self.gateway.log), default=0)
                if ran.code != 3 and last > put_back_at + 2:
                    self.problems.append(f"unnoticed: a worker went on after its database had lost commits: exit {ran.code}")
        self.rollback = Rollback(copied_at, put_back_at, places)
        for budget in self.budgets:
            budget.until = min(budget.until, copied_at)
        self.budget_kind = None
        # As the documentation says: the workers' files are settled, and what is left goes into new campaigns.
        self.site.settle_files()
        for campaign in self.campaigns:
            self.command("cancel", campaign)
        rest = [f"+447500{self.seed * 100 % 100_000 + row:06}" for row in range(5)]
        self.campaigns["rest"] = rest
        self.month = None
        self.configure()
        self.site.import_list("rest", rest)

    # A whole round.

    def play(self):
        self.problems = []
        self.prepare()
        began = time.time()
        self.chaos(self.random.uniform(1.0, 1.6) if self.incident else self.random.uniform(1.8, 3.2))
        if self.incident:
            self.lose_commits()
        for worker in self.workers:
            if worker.is_stopped:
                worker.resume()
        self.calm()
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
            ran = worker.ended(30)
            if ran.code is None:
                self.problems.append("a worker does not end after SIGTERM")
        self.workers = []
        self.finish()
        self.tally["seconds"] = time.time() - began
        return self.verdict()

    def calm(self):
        """The gateway only accepts from now on. What operators have changed stays as it is."""
        calm = Faults(share=0.0)
        for account in self.gateway.accounts.values():
            account.policy, account.batch_policy = random_policy(calm), random_batch_policy(calm)
            self.heal(account)

    def finish(self):
        """Sends what the budgets pay for, lifts them, continues all campaigns, and sends the rest."""
        self.note("the end begins")
        if self.budgets and not self.rollback:
            self.send()
            lifted_at = time.time()
            for budget in self.budgets:
                budget.until = min(budget.until, lifted_at)
            for campaign in {budget.campaign for budget in self.budgets} - {None}:
                if not self.was_cancelled(campaign):
                    self.site.must("set", campaign, "--budget", "none")
            self.month = None
            self.configure()
        for campaign in self.campaigns:
            if not self.was_cancelled(campaign):
                self.site.run("resume", campaign)
        for attempt in range(5):
            ran = self.send()
            if ran.code is None:
                break
            left = self.database.query("SELECT count(*) FROM sms m JOIN campaign c ON c.id = m.campaign_id "
                                       "WHERE m.state < 2 AND c.state <> 3")
            if int(left[0][0]) == 0 and ran.code in (0, 1):
                break
        if any(features.receipts for features in self.features.values()):
            time.sleep(1.1)
            self.site.run("receipts")
        checked = self.site.run("check", "--offline")
        if checked.code != 0:
            self.problems.append(f"check ends with {checked.code}: {(checked.stdout + checked.stderr).strip()[-300:]}")

    def was_cancelled(self, campaign):
        return self.site.status(campaign)["state"] == "cancelled"

    def send(self):
        ran = self.site.run("send", "--yes", "--quiet", patience=LAST_WORKER)
        if ran.code is None:
            self.problems.append(f"lost: the last worker does not end within {LAST_WORKER} s")
        return ran

    def verdict(self):
        # What was accepted late.
        time.sleep(0.1)
        places = collections.defaultdict(list)
        details = {
            phone: (provider, reference)
            for phone, provider, reference in self.database.query(
                "SELECT phone, coalesce(claimed_provider, ''), coalesce(reference, '') FROM sms")
        }
        rows = self.database.query(
            "SELECT c.name, m.phone, m.state FROM sms_message m JOIN campaign c ON c.id = m.campaign_id")
        for campaign, phone, state in rows:
            places[campaign, phone].append((state, *details.get(phone, ("", ""))))
        status = self.site.status()
        states = {campaign["campaign"]: campaign["state"] for campaign in status["campaigns"]}
        report = self.site.must("report", "--failed", "--format", "json").json
        listed = {failure["phone"] for failure in report["failures"] if failure["state"] == "unknown"}
        verdict = judge(Evidence(
            log=list(self.gateway.log), lookups=self.gateway.lookups, stalls=self.gateway.stalls,
            campaigns=self.campaigns, places=places, states=states,
            honours={name for name, features in self.features.items() if features.honours},
            answers_lookups={name for name, features in self.features.items() if features.lookup},
            approvals=self.approvals, budgets=self.budgets, limits=self.limits(),
            disturbances=self.disturbances + [end for end, length in self.gateway.stalls if length > 0.3],
            thaws=self.thaws, listed=listed, rollback=self.rollback,
        ))
        verdict.findings += self.problems
        imported = sum(campaign["imported"] for campaign in status["campaigns"])
        messages = sum(map(len, self.campaigns.values()))
        if imported != messages:
            verdict.find("lost", f"{messages} messages were imported, and status counts {imported}")
        for line in self.site.panics():
            verdict.findings.append(f"panic: {' '.join(line)}")
        stalled = sum(length for _, length in self.gateway.stalls)
        if stalled > STARVED * self.tally["seconds"]:
            # A request starts within a tolerance of its instant, or not at all.
            unended = [text for text in verdict.findings if "does not end" in text or " is still " in text]
            verdict.findings = [text for text in verdict.findings if text not in unended]
            verdict.counts["lost"] -= sum(1 for text in unended if " is still " in text)
            verdict.counts["starved"] = int(bool(unended))
        if self.has_second_answers:
            # These answers cannot be distinguished from others: they are counted, and are not a fault.
            verdict.counts["second answers"] = sum(1 for entry in self.gateway.log if entry["delivery"] == "second")
        return verdict

    def limits(self):
        limits = []
        for name in self.features:
            if self.rate:
                limits.append(Limit(f"provider {name}", self.rate, 1.0, lambda e, name=name: e["account"] == name))
            for sender in ("s0", "s1", "s2"):
                if self.sender_rate:
                    limits.append(Limit(
                        f"sender {sender} of {name}", self.sender_rate, 1.0,
                        lambda e, name=name, sender=sender: e["account"] == name and e["from"] == sender,
                    ))
        if self.campaign_rate:
            for campaign, phones in self.campaigns.items():
                if campaign != "rest":
                    own = set(phones)
                    limits.append(Limit(f"campaign {campaign}", self.campaign_rate, 1.0, lambda e, own=own: e["phone"] in own))
        return limits

    def describe(self):
        words = [self.incident or "", "route" if self.has_route else "", "pool" if self.has_pool else ""]
        words += [f"batches of {self.batch}" if self.batch else "", f"budget {self.budget_kind}" if self.budget_kind else ""]
        for name, features in self.features.items():
            offer = "references" if features.honours else f"lookups by {features.lookup}" if features.lookup else "nothing"
            words.append(f"{name} has {offer}" + (f", {features.remembers}" if features.remembers != "nothing" else ""))
        return ", ".join(word for word in words if word)

    def keep(self):
        with open(os.path.join(self.site.folder, "gateway.json"), "w") as file:
            json.dump(self.gateway.everything(), file, indent=1)
        commands = [
            f"{ran.began:.3f} {ran.ended - ran.began:.3f} s, exit {ran.code}: smsq {' '.join(ran.line)}\n"
            + "".join(f"    {line}\n" for line in ran.stderr.splitlines())
            for ran in sorted(self.site.commands, key=lambda ran: ran.began)
        ]
        with open(os.path.join(self.site.folder, "commands"), "w") as file:
            file.write("".join(commands))
        with open(os.path.join(self.site.folder, "history"), "w") as file:
            file.write(f"{self.describe()}\n" + "\n".join(self.history) + "\n")


def play_one(seed, engine, folder):
    """Plays one round, and prints what it counted and found as JSON."""
    played = Round(seed, engine, folder)
    result = {"what": played.describe()}
    try:
        verdict = played.play()
        counts, findings = dict(verdict.counts), verdict.findings
        # Rounds with second answers are counted apart.
        if played.has_second_answers:
            findings = [text for text in findings if not text.startswith(("accepted but failed", "sent but never"))]
            for promise in PROMISES:
                counts[promise] = sum(1 for text in findings if text.startswith(promise + ":"))
    except Failed as error:
        counts, findings = {}, [f"cannot be played: {error}"]
    finally:
        for worker in played.workers:
            worker.signal(signal.SIGCONT)
            worker.kill()
        played.keep()
        played.database.drop()
    result.update(counts={**played.tally, **counts}, findings=findings)
    print(json.dumps(result), flush=True)


def play_apart(seed, engine, keep):
    """Plays a round in a process of its own."""
    folder = tempfile.mkdtemp(prefix=f"round-{engine}-{seed}-")
    line = [*WITH_PARENT, sys.executable, __file__, str(seed), engine, folder]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    try:
        result = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        text = ran.stderr.strip()
        result = {"what": "", "counts": {"rounds": 1}, "findings": [f"the round broke off: {text[-600:]}"]}
    if result["findings"]:
        kept = os.path.join(keep, f"{engine}-{seed}")
        shutil.rmtree(kept, ignore_errors=True)
        os.makedirs(keep, exist_ok=True)
        shutil.move(folder, kept)
        with open(os.path.join(kept, "findings"), "w") as file:
            file.write("\n".join(result["findings"]) + "\n")
        result["kept"] = kept
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return seed, result


def play_all(arguments, engines, keep):
    failed = 0
    print("| engine | seeds | " + " | ".join(COLUMNS) + " | failed rounds |")
    print("| --- | --- |" + " ---: |" * (len(COLUMNS) + 1))
    first = arguments.seed if arguments.seed is not None else 1
    for engine in engines:
        total, bad, seconds = collections.Counter(), 0, 0.0
        seeds = range(first, first + arguments.rounds)
        with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
            for seed, result in pool.map(lambda seed: play_apart(seed, engine, keep), seeds):
                total.update(result["counts"])
                findings = result["findings"]
                text = f"round {seed} on {ENGINES[engine].name} ({result['counts'].get('seconds', 0):.1f} s; {result['what']})"
                if findings:
                    bad += 1
                    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
                    text += f": {' '.join(findings[0].split())}{more}; in {result.get('kept')}"
                print(text, file=sys.stderr, flush=True)
        row = " | ".join(str(total[column]) for column in COLUMNS)
        print(f"| {ENGINES[engine].name} | {seeds[0]}–{seeds[-1]} | {row} | {bad} |", flush=True)
        failed += bad
    return 1 if failed else 0


if __name__ == "__main__":
    from program import use_servers

    use_servers()
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("engine")
    parser.add_argument("folder")
    one = parser.parse_args()
    play_one(one.seed, one.engine, one.folder)
