"""Sends long campaigns, and says what they need over time: `benches/servers soak`, `long` or `limits`.

`soak` sends messages on a server with faults of every kind and with delivery receipts through four workers, which are
killed at random, and counts at the gateway. `long` imports, sends, reports and purges a shuffled list with one worker.
`limits` compares the arrivals at the gateway with the rate limit. `table` prints the results as tables.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

# Numbers that exist, as far as libphonenumber knows.
PREFIX = "+44740"
# A worker slows down after each 429, whatever its cause, so 1 % of them would measure only that.
FAULTS = """
seed = {seed}
unavailable = "1%"
unavailable_after = "1%"
throttle = "every 50000"
no_answer = "1%"
slow = "1%"
slow_for = "3s"
broken = "1%"
late = "1%"
late_for = "1s"
[receipts]
delay = "1s"
undelivered = "1%"
expired = "1%"
missing = "1%"
intermediate = "1%"
out_of_order = "1%"
doubled = "1%"
contradicting = "1%"
early = "1%"
foreign = "1%"
reject_late = "1%"
"""
# Messages per second, and workers.
LIMITS = [(20, 1), (20, 4), (100, 1), (100, 4), (1000, 1), (1000, 4)]
LIMITED_SECONDS = 20
TABLES = ["sms", "sms_sent", "sms_failed"]
WORKERS = 4


class Engine:
    """A database, by the command-line client of its engine."""

    def __init__(self, name, folder):
        self.name = name
        self.server = None
        if name == "sqlite":
            self.file = folder / "smsq.db"
            self.url = f"sqlite://{self.file}"
            return
        variable, process = {
            "postgres": ("SMSQ_TEST_POSTGRES", "SMSQ_BENCH_POSTGRES_PID"),
            "mariadb": ("SMSQ_TEST_MYSQL", "SMSQ_BENCH_MARIADB_PID"),
        }[name]
        server = os.environ[variable]
        self.server = int(os.environ[process])
        self.port = server.rsplit(":", 1)[1]
        self.database = f"campaigns_{os.getpid()}"
        self.url = f"{server}/{self.database}"
        self.ask(f"CREATE DATABASE {self.database}", administer=True)

    def ask(self, sql, administer=False):
        """The lines of an answer, with tabs between values."""
        if self.name == "sqlite":
            command = ["sqlite3", "-readonly", "-separator", "\t", str(self.file), sql]
            if sql.startswith("UPDATE"):
                command.remove("-readonly")
        elif self.name == "postgres":
            database = "postgres" if administer else self.database
            url = f"postgres://smsq:smsq@127.0.0.1:{self.port}/{database}"
            command = ["psql", "-qAt", "-F", "\t", url, "-c", sql]
        else:
            command = ["mariadb", "--host=127.0.0.1", f"--port={self.port}", "--user=smsq", "--password=smsq"]
            command += ["--skip-ssl", "--batch", "--skip-column-names", "--execute", sql]
            command += [] if administer else [self.database]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    def number(self, sql):
        return int(self.ask(sql)[0] or 0)

    def sizes(self):
        """The size of each table with its indexes, in MB."""
        if self.name == "sqlite":
            files = [self.file, Path(f"{self.file}-wal")]
            return {"database": sum(file.stat().st_size for file in files if file.exists()) / 1e6}
        if self.name == "postgres":
            names = ", ".join(f"pg_total_relation_size('{table}')" for table in TABLES)
            values = self.ask(f"SELECT {names}")[0].split("\t")
            return {table: int(value) / 1e6 for table, value in zip(TABLES, values)}
        names = ", ".join(f"'{self.database}/{table}'" for table in TABLES)
        sql = f"SELECT name, file_size FROM information_schema.innodb_sys_tablespaces WHERE name IN ({names})"
        rows = [line.split("\t") for line in self.ask(sql)]
        return {name.split("/")[1]: int(size) / 1e6 for name, size in rows}

    def connections(self):
        """How many connections to the database are open, without this one."""
        if self.name == "postgres":
            sql = f"SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = '{self.database}'"
        else:
            sql = f"SELECT count(*) - 1 FROM information_schema.processlist WHERE db = '{self.database}'"
        return self.number(sql)


def memory_mb(process):
    """The memory that a process has for itself, and its share of what it shares."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        return int(re.search(r"^Pss: +(\d+) kB", text, re.M).group(1)) / 1000
    except (OSError, AttributeError):
        return 0.0


def descriptors(process):
    try:
        return len(os.listdir(f"/proc/{process}/fd"))
    except OSError:
        return 0


def descendants(root):
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for process in found:
        found.extend(children.get(process, []))
    return found


class Gateway:
    """The practice gateway, as a process of its own."""

    def __init__(self, smsq, folder, *options):
        command = [smsq, "sandbox", "--listen", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.url = self.process.stdout.readline().strip()

    def accepted(self):
        with urllib.request.urlopen(f"{self.url}/stats", timeout=30) as answer:
            return json.load(answer)["accepted"]


def configure(folder, engine, gateway, more=""):
    """Writes the settings, with further lines for the provider's section."""
    (folder / "smsq.toml").write_text(
        f"""[database]
url = "{engine.url}"
[providers.sandbox]
kind = "sandbox"
url = "{gateway.url}"
{more}
"""
    )


def write_list(path, rows, seed):
    """Writes `rows` different phones in random order."""
    numbers = list(range(rows))
    random.Random(seed).shuffle(numbers)
    with open(path, "w", encoding="ascii") as file:
        file.write("phone,name\n")
        file.writelines(f"{PREFIX}{number:07},Name {number % 1000}\n" for number in numbers)


def run(command, folder, codes=(0,)):
    """Runs a command; returns its output and its seconds."""
    began = time.monotonic()
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ran.returncode not in codes:
        sys.exit(f"{' '.join(map(str, command))}: exit status {ran.returncode}\n{ran.stderr}")
    return ran.stdout, time.monotonic() - began


def say(text):
    print(text, flush=True)


def plot(path, title, rows, panels):
    """Draws one panel below the other; each has a label, and the names of its columns."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(panels), 1, sharex=True, figsize=(8, 1.7 * len(panels)), layout="constrained")
    minutes = [row["second"] / 60 for row in rows]
    for axis, (label, columns) in zip(axes, panels):
        for column in columns:
            axis.plot(minutes, [row.get(column, 0) for row in rows], label=column, linewidth=0.8)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(linewidth=0.3)
        if len(columns) > 1:
            axis.legend(fontsize="x-small", loc="upper left")
    axes[0].set_title(title)
    axes[-1].set_xlabel("minutes")
    figure.savefig(path, dpi=110)


def soak(options, folder):
    engine = Engine(options.engine, folder)
    smsq = options.smsq
    (folder / "faults.toml").write_text(FAULTS.format(seed=options.seed))
    gateway = Gateway(smsq, folder, "--faults", "faults.toml", "--log", "gateway.jsonl")
    (folder / "smsq.toml").write_text(
        f"""[database]
url = "{engine.url}"
[sender]
lease = "10s"
[retry]
first_wait = "200ms"
max_wait = "5s"
[providers.sandbox]
kind = "sandbox"
url = "{gateway.url}"
timeout = "2s"
receipts = {{ enabled = true, every = "1s" }}
"""
    )
    write_list(folder / "list.csv", options.messages, options.seed)
    _, seconds = run([smsq, "import", "list.csv", "--text", "Hello {{ name }}", "--provider", "sandbox"], folder)
    say(f"imported {options.messages:,} in {seconds:.0f} s")
    chance = random.Random(options.seed)
    rows, kills, workers = [], 0, {}
    began = time.monotonic()
    kill_at = began + 15

    def start(number):
        workers[number] = subprocess.Popen(
            [smsq, "send", "--yes", "--quiet"], cwd=folder, stdout=subprocess.DEVNULL, stderr=errors
        )

    with open(folder / "workers.log", "w", encoding="utf-8") as errors:
        for number in range(WORKERS):
            start(number)
        before = (0, 0.0)
        while workers:
            time.sleep(2)
            second = time.monotonic() - began
            accepted = gateway.accepted()
            row = {
                "second": round(second, 1),
                "accepted": accepted,
                "accepted/s": (accepted - before[0]) / (second - before[1]),
                "connections": engine.connections(),
                "server": sum(map(memory_mb, descendants(engine.server))),
                "gateway": memory_mb(gateway.process.pid),
                **engine.sizes(),
            }
            before = (accepted, second)
            for number, worker in workers.items():
                row[f"worker {number + 1}"] = memory_mb(worker.pid)
                row[f"descriptors {number + 1}"] = descriptors(worker.pid)
            rows.append(row)
            if time.monotonic() > kill_at and accepted < options.messages * 0.98:
                number = chance.randrange(WORKERS)
                if number in workers:
                    workers[number].kill()
                    workers[number].wait()
                    kills += 1
                    start(number)
                kill_at = time.monotonic() + chance.uniform(5, 25)
            for number, worker in list(workers.items()):
                code = worker.poll()
                if code is not None:
                    if code not in (0, 1):
                        sys.exit(f"a worker ended with {code}; see {folder}/workers.log")
                    del workers[number]
    seconds = time.monotonic() - began
    # Receipts arrive after the last message.
    run([smsq, "receipts"], folder, codes=(0, 1))
    time.sleep(2)
    run([smsq, "receipts"], folder, codes=(0, 1))
    counts = json.loads(run([smsq, "status", "--format", "json"], folder)[0])
    run([smsq, "check", "--offline"], folder)
    accepted = {}
    with open(folder / "gateway.jsonl", encoding="utf-8") as log:
        for line in log:
            entry = json.loads(line)
            if entry["event"] == "accepted":
                accepted[entry["to"]] = accepted.get(entry["to"], 0) + 1
    sent = set(engine.ask("SELECT phone FROM sms_sent"))
    other = {}
    for line in engine.ask("SELECT phone, state FROM sms"):
        phone, place = line.split("\t")
        other[phone] = place
    other.update((phone, "failed") for phone in engine.ask("SELECT phone FROM sms_failed"))
    unknown = {phone for phone, place in other.items() if place == "2"}
    result = {
        "engine": engine.name,
        "messages": options.messages,
        "seed": options.seed,
        "seconds": round(seconds),
        "kills": kills,
        "sent": len(sent),
        "failed": sum(place == "failed" for place in other.values()),
        "unknown": len(unknown),
        "unknown_accepted": sum(phone in accepted for phone in unknown),
        "lost": options.messages - len(sent | other.keys()) + sum(place in "01" for place in other.values()),
        "sent_not_accepted": sum(phone not in accepted for phone in sent),
        "failed_accepted": sum(phone in accepted for phone, place in other.items() if place == "failed"),
        "twice": sum(count > 1 for count in accepted.values()),
        "status": counts,
    }
    columns = [f"worker {number + 1}" for number in range(WORKERS)]
    files = [f"descriptors {number + 1}" for number in range(WORKERS)]
    panels = [
        ("accepted/s", ["accepted/s"]),
        ("workers, MB", columns),
        ("MB", ["server", "gateway"]),
        ("connections", ["connections"]),
        ("descriptors", files),
        ("tables, MB", TABLES),
    ]
    title = f"{options.messages:,} messages on {engine.name}, {kills} kills"
    save(options, f"soak-{engine.name}", result, rows, title, panels)
    broken = [name for name in ("lost", "twice", "sent_not_accepted", "failed_accepted") if result[name]]
    if broken:
        shutil.copytree(folder, f"{options.output}/soak-{engine.name}-kept", dirs_exist_ok=True)
        sys.exit(f"broken promises: {', '.join(broken)}")


def commit_buckets(file):
    """How many commits took at most how many seconds."""
    try:
        text = file.read_text()
    except OSError:
        return {}
    pattern = r'^smsq_commit_duration_seconds_bucket\{.*?le="([^"]+)".*?\} (\d+)'
    return {float(bound): int(count) for bound, count in re.findall(pattern, text, re.M)}


def p99_ms(before, after):
    """The bound of the bucket with the 99th percentile of the commits between two readings, in ms."""
    counts = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    total = max(counts.values(), default=0)
    bounds = [bound for bound, count in sorted(counts.items()) if count >= total * 0.99]
    return bounds[0] * 1000 if total else None


def rate_between(rows, column, first, last):
    """The rows per second while a count went from `first` to `last`."""
    reached = [row for row in rows if first <= row[column] <= last]
    if len(reached) < 2:
        return None
    span = reached[-1]["second"] - reached[0]["second"]
    return round((reached[-1][column] - reached[0][column]) / span)


def long(options, folder):
    engine = Engine(options.engine, folder)
    smsq, total = options.smsq, options.messages
    gateway = Gateway(smsq, folder)
    configure(folder, engine, gateway)
    write_list(folder / "list.csv", total, options.seed)
    part = total // 10
    rows = []

    def watch(command, column, count):
        """Runs a command, and counts what it does every second."""
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        began, seen = time.monotonic(), []
        while process.poll() is None:
            time.sleep(1)
            second = time.monotonic() - began
            try:
                row = {"second": second, column: count(), "memory": memory_mb(process.pid), **engine.sizes()}
            except (subprocess.CalledProcessError, OSError):
                # The table does not exist yet, or the file is locked.
                continue
            row["commits"] = commit_buckets(folder / "smsq.prom")
            seen.append(row)
        if process.returncode != 0:
            sys.exit(f"{command}: exit status {process.returncode}: {process.stderr.read().decode()}")
        return seen, time.monotonic() - began

    imported, import_seconds = watch(
        [smsq, "import", "list.csv", "--text", "Hello {{ name }}", "--provider", "sandbox", "--quiet"],
        "rows",
        lambda: engine.number("SELECT max(id) FROM sms"),
    )
    say(f"imported {total:,} in {import_seconds:.0f} s")
    size = sum(engine.sizes().values())
    sent, send_seconds = watch(
        [smsq, "send", "--yes", "--quiet", "--metrics-file", "smsq.prom"], "sent", gateway.accepted
    )
    say(f"sent {total:,} in {send_seconds:.0f} s")
    # The workers of the gateway stay; the largest memory is that of the sender.
    buckets = [(row["sent"], row["commits"]) for row in sent]
    first = [commits for count, commits in buckets if count <= part and commits]
    last = [commits for count, commits in buckets if count >= total - part and commits]
    _, report_seconds = run([smsq, "report", "--format", "json"], folder, codes=(0, 1))
    _, status_seconds = run([smsq, "status", "--format", "json"], folder)
    _, list_seconds = run([smsq, "report", "--sent", "--format", "csv", "--output", "sent.csv"], folder)
    sent_size = sum(engine.sizes().values())
    # Only what is older than a day can be purged.
    engine.ask(f"UPDATE sms_sent SET sent_at = sent_at - {3 * 24 * 3600 * 1000}")
    purged, purge_seconds = run([smsq, "purge", "--older-than", "1d", "--yes", "--format", "json"], folder)
    result = {
        "engine": engine.name,
        "rows": total,
        "seed": options.seed,
        "import_seconds": round(import_seconds),
        "imported_per_second_first": rate_between(imported, "rows", 1, part),
        "imported_per_second_last": rate_between(imported, "rows", total - part, total - 1),
        "import_memory_mb": round(max(row["memory"] for row in imported)),
        "size_imported_mb": round(size),
        "send_seconds": round(send_seconds),
        "sent_per_second_first": rate_between(sent, "sent", 1, part),
        "sent_per_second_last": rate_between(sent, "sent", total - part, total - 1),
        "send_memory_mb": round(max(row["memory"] for row in sent)),
        "commit_p99_ms_first": p99_ms({}, first[-1]) if first else None,
        "commit_p99_ms_last": p99_ms(last[0], last[-1]) if len(last) > 1 else None,
        "size_sent_mb": round(sent_size),
        "report_seconds": round(report_seconds, 2),
        "status_seconds": round(status_seconds, 2),
        "list_of_sent_seconds": round(list_seconds, 1),
        "purge_seconds": round(purge_seconds),
        "purged": json.loads(purged),
        "accepted": gateway.accepted(),
    }
    end = imported[-1]["second"]
    for row in sent:
        row["second"] += end
    rows = imported + sent
    for before, row in zip(rows, rows[1:]):
        for column in ("rows", "sent"):
            if column in row and column in before:
                span = row["second"] - before["second"]
                row[f"{column}/s"] = (row[column] - before[column]) / span
        row.pop("commits")
    rows[0].pop("commits")
    sizes = list(engine.sizes())
    panels = [("rows/s", ["rows/s", "sent/s"]), ("smsq, MB", ["memory"]), ("size, MB", sizes)]
    save(options, f"long-{engine.name}", result, rows, f"{total:,} shuffled rows on {engine.name}", panels)
    if result["accepted"] != total:
        sys.exit(f"the gateway accepted {result['accepted']:,} messages")


def limits(options, folder):
    engine = Engine(options.engine, folder)
    smsq = options.smsq
    results = []
    for limit, count in LIMITS:
        (folder / "gateway.jsonl").write_text("")
        gateway = Gateway(smsq, folder, "--log", "gateway.jsonl", "--latency", "20ms")
        configure(folder, engine, gateway, f'rate = "{limit}/s"')
        write_list(folder / "list.csv", limit * LIMITED_SECONDS, options.seed)
        name = f"limit-{limit}-{count}"
        line = ["import", "list.csv", "--again", "--text", "Hello", "--provider", "sandbox", "--campaign", name]
        run([smsq, *line], folder)
        quiet = subprocess.DEVNULL
        line = [smsq, "send", "--yes", "--quiet"]
        workers = [subprocess.Popen(line, cwd=folder, stdout=quiet) for _ in range(count)]
        if any(worker.wait() != 0 for worker in workers):
            sys.exit("a worker failed")
        gateway.process.kill()
        with open(folder / "gateway.jsonl", encoding="utf-8") as log:
            entries = [json.loads(line) for line in log]
        arrivals = sorted(entry["at"] for entry in entries if entry["event"] == "arrived")
        most, first = 0, 0
        for index, at in enumerate(arrivals):
            while arrivals[first] <= at - 1e6:
                first += 1
            most = max(most, index - first + 1)
        span = (arrivals[-1] - arrivals[0]) / 1e6
        result = {
            "limit": limit,
            "workers": count,
            "messages": len(arrivals),
            "most_in_a_second": most,
            "utilisation": round((len(arrivals) - 1) / span / limit, 4),
        }
        say(json.dumps(result))
        results.append(result)
    save(options, f"limits-{engine.name}", {"engine": engine.name, "limits": results})


def save(options, name, result, rows=None, title=None, panels=None):
    """Writes the figures; and the plot of the values over time."""
    say(json.dumps(result, indent=2))
    os.makedirs(options.output, exist_ok=True)
    Path(options.output, f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    if rows:
        plot(Path(options.output, f"{name}.png"), title, rows, panels)


def show(value):
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def print_table(head, rows):
    """Prints a table; numbers are aligned by their renderer."""
    say(f"| {' | '.join(head)} |")
    say(f"| --- |{' ---: |' * (len(head) - 1)}")
    for row in rows:
        say(f"| {' | '.join(map(show, row))} |")


NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB"}
COLUMNS = {
    "soak": {
        "messages": "messages",
        "seconds": "seconds",
        "kills": "kills",
        "sent": "sent",
        "failed": "failed",
        "lost": "lost",
        "twice": "twice",
        "unknown": "unknown",
        "unknown_accepted": "of these accepted",
    },
    "long": {
        "import_seconds": "seconds of the import",
        "imported_per_second_first": "rows/s, first tenth",
        "imported_per_second_last": "rows/s, last tenth",
        "import_memory_mb": "memory, MB",
        "send_seconds": "seconds of sending",
        "sent_per_second_first": "messages/s, first tenth",
        "sent_per_second_last": "messages/s, last tenth",
        "send_memory_mb": "memory, MB",
        "commit_p99_ms_first": "p99 of a commit, first tenth, at most ms",
        "commit_p99_ms_last": "p99 of a commit, last tenth, at most ms",
        "report_seconds": "seconds of the report",
        "list_of_sent_seconds": "seconds of the list of sent messages",
        "purge_seconds": "seconds of the purge",
        "size_imported_mb": "size after the import, MB",
        "size_sent_mb": "size after sending, MB",
    },
}


def table(options):
    """Prints what earlier runs have saved, one table for a kind of run."""
    results = []
    for engine in NAMES:
        path = Path(options.output, f"{options.kind}-{engine}.json")
        if path.exists():
            results.append(json.loads(path.read_text()))
    if options.kind == "limits":
        head = ["limit per second, workers"]
        head += [f"{NAMES[result['engine']]}: most in a second, utilisation" for result in results]
        by_case = zip(*(result["limits"] for result in results))
        cell = "{most_in_a_second}, {utilisation:.1%}".format_map
        print_table(head, [[f"{row[0]['limit']}, {row[0]['workers']}", *map(cell, row)] for row in by_case])
    elif options.kind == "soak":
        columns = COLUMNS["soak"]
        rows = [[NAMES[result["engine"]], *(result[column] for column in columns)] for result in results]
        print_table(["engine", *columns.values()], rows)
    else:
        # Many figures of few engines.
        rows = [[label, *(result[column] for result in results)] for column, label in COLUMNS["long"].items()]
        print_table(["", *(NAMES[result["engine"]] for result in results)], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["soak", "long", "limits", "table"])
    parser.add_argument("of", help="an engine: sqlite, postgres or mariadb; for `table` soak, long or limits")
    parser.add_argument("--messages", type=int, help="2,000,000, or 10,000,000 for `long`")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smsq", default=os.path.abspath("target/release/smsq"))
    parser.add_argument("--output", default=os.path.abspath("target/campaigns"))
    options = parser.parse_args()
    options.engine = options.kind = options.of
    if options.what == "table":
        table(options)
        return
    if options.engine not in NAMES or options.what == "soak" and options.engine == "sqlite":
        parser.error(f"`{options.what}` cannot run on `{options.engine}`")
    options.messages = options.messages or {"soak": 2_000_000}.get(options.what, 10_000_000)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory() as folder:
            {"soak": soak, "long": long, "limits": limits}[options.what](options, Path(folder))
    finally:
        for process in descendants(os.getpid())[1:]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass


if __name__ == "__main__":
    main()
