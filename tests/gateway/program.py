"""Runs the real program: its commands, its workers, its configuration and its database on each engine."""

import dataclasses
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

PROGRAM = os.environ.get("SMSQ_PROGRAM", "target/debug/smsq")
# A command ends with the process that has started it.
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"]
# No command of a round needs longer, on a busy machine.
PATIENCE = 120


@dataclasses.dataclass
class Ran:
    """A command that has ended."""

    line: list
    code: int | None
    stdout: str
    stderr: str
    began: float
    ended: float

    @property
    def json(self):
        return json.loads(self.stdout)


class Worker:
    """A command that is running, in a session of its own."""

    def __init__(self, site, line):
        self.site = site
        self.line = line
        self.began = time.time()
        self.output = open(site.next_output(line[0]), "w+")
        self.errors = open(self.output.name + ".err", "w+")
        self.process = subprocess.Popen(
            [*WITH_PARENT, os.path.abspath(PROGRAM), *line], cwd=site.folder, env=site.environment, stdin=subprocess.DEVNULL,
            stdout=self.output, stderr=self.errors, start_new_session=True,
        )
        self.is_stopped = False

    @property
    def is_running(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.is_running:
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        return self.ended()

    def stop(self):
        self.is_stopped = True
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)
        self.is_stopped = False

    def ended(self, patience=PATIENCE):
        """Waits for its end. A command that does not end is killed, and has no code."""
        try:
            code = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        texts = []
        for file in (self.output, self.errors):
            file.seek(0)
            texts.append(file.read())
            file.close()
        ran = Ran(self.line, code, *texts, self.began, time.time())
        self.site.record(ran)
        return ran


class Site:
    """A folder with a configuration, and the database that its commands use."""

    def __init__(self, folder, database):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.database = database
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SMSQ", "XDG"))},
            "HOME": folder, "XDG_STATE_HOME": os.path.join(folder, "state"), "SMSQ__DATABASE__URL": database.url,
            "RUST_BACKTRACE": "1",
        }
        self.commands = []
        self.lock = threading.Lock()
        self.outputs = 0

    def next_output(self, name):
        with self.lock:
            self.outputs += 1
            return os.path.join(self.folder, f"{self.outputs:03}-{name}.out")

    def record(self, ran):
        with self.lock:
            self.commands.append(ran)

    def start(self, *line):
        return Worker(self, list(line))

    def run(self, *line, patience=PATIENCE):
        return self.start(*line).ended(patience)

    def must(self, *line, codes=(0,), patience=PATIENCE):
        ran = self.run(*line, patience=patience)
        if ran.code not in codes:
            raise Failed(f"`smsq {' '.join(line)}` ended with {ran.code}: {ran.stderr.strip()[-400:]}")
        return ran

    def write(self, name, text):
        # As a whole: a command may be reading it.
        path = os.path.join(self.folder, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def import_list(self, campaign, phones, *more):
        self.write(f"{campaign}.csv", "phone\n" + "".join(f"{phone}\n" for phone in phones))
        return self.must("import", f"{campaign}.csv", "--text", "Hello", "--campaign", campaign, *more)

    def status(self, campaign=None):
        return self.must("status", "--format", "json", *(["--campaign", campaign] if campaign else [])).json

    def settle_files(self):
        """What the documentation says after a restore: each file of the workers is settled by hand."""
        for folder, _, names in sorted(os.walk(self.folder)):
            if folder.endswith("-unsettled"):
                for name in sorted(names):
                    self.must("settle", "--journal", os.path.join(folder, name))

    def panics(self):
        return [ran.line for ran in self.commands if "panicked at" in ran.stderr or ran.code in (101, 134)]


class Failed(Exception):
    """A round or scene could not be played to its end."""


# Databases.

class Sqlite:
    name = "SQLite"

    def __init__(self, folder, _name):
        self.path = os.path.join(folder, "smsq.db")
        self.url = f"sqlite://{self.path}"

    def query(self, sql, path=None):
        connection = sqlite3.connect(path or self.path, timeout=20)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def backup(self, name):
        """An online backup, as `.backup` of the shell makes one."""
        copy = f"{self.path}.{name}"
        source, target = sqlite3.connect(self.path, timeout=20), sqlite3.connect(copy)
        source.backup(target)
        source.close()
        target.close()
        return copy

    def query_backup(self, name, sql):
        return self.query(sql, f"{self.path}.{name}")

    def restore(self, name):
        """Puts a backup in the place of the database, which no process uses."""
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(self.path + ending):
                os.replace(self.path + ending, f"{self.path}.lost{ending}")
        shutil.copyfile(f"{self.path}.{name}", self.path)

    # A running worker keeps the file that it has opened.
    replace = restore

    def drop(self):
        pass


class Postgres:
    name = "PostgreSQL"
    server = None

    def __init__(self, _folder, name):
        self.database = name
        self.url = f"{self.server}/{name}"
        self.admin(f'CREATE DATABASE "{name}" TEMPLATE template0')

    def psql(self, url, sql):
        ran = subprocess.run(
            ["psql", "-qAtX", "-F", "\t", "-v", "ON_ERROR_STOP=1", url, "-c", sql], capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )
        if ran.returncode:
            raise Failed(f"psql: {ran.stderr.strip()}")
        return [tuple(line.split("\t")) for line in ran.stdout.splitlines() if line]

    def admin(self, sql):
        return self.psql(f"{self.server}/postgres", sql)

    def query(self, sql):
        return self.psql(self.url, sql)

    def query_backup(self, name, sql):
        return self.psql(f"{self.server}/{self.database}_{name}", sql)

    def without_connections(self, database, work):
        """Cuts all connections, lets none in meanwhile, and runs the work."""
        self.admin(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
        try:
            for attempt in range(50):
                cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
                self.admin(cut)
                left = self.admin(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'")
                if left[0][0] == "0":
                    break
                time.sleep(0.02)
            return work()
        finally:
            exists = self.admin(f"SELECT 1 FROM pg_database WHERE datname = '{database}'")
            if exists:
                self.admin(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true')

    def backup(self, name):
        copy = f"{self.database}_{name}"
        make = f'CREATE DATABASE "{copy}" TEMPLATE "{self.database}"'
        self.without_connections(self.database, lambda: self.admin(make))
        return copy

    def restore(self, name):
        """Puts the copy in the place of the database: connected workers find an older past."""
        def swap():
            # In one transaction, so that the name always exists.
            self.admin(
                f'ALTER DATABASE "{self.database}" RENAME TO "{self.database}_lost"; '
                f'ALTER DATABASE "{self.database}_{name}" RENAME TO "{self.database}"'
            )

        # The backup stays, for those who look at it.
        kept = f'CREATE DATABASE "{self.database}_kept" TEMPLATE "{self.database}_{name}"'
        self.admin(kept)
        self.without_connections(self.database, swap)
        self.admin(f'ALTER DATABASE "{self.database}_lost" ALLOW_CONNECTIONS true')
        self.admin(f'ALTER DATABASE "{self.database}_kept" RENAME TO "{self.database}_{name}"')

    replace = restore

    def drop(self):
        names = self.admin(f"SELECT datname FROM pg_database WHERE datname LIKE '{self.database}%'")
        for (name,) in names:
            self.admin(f'DROP DATABASE "{name}" WITH (FORCE)')


class Mariadb:
    name = "MariaDB"
    server = None

    def __init__(self, _folder, name):
        self.database = name
        self.url = f"{self.server}/{name}"
        self.admin(f"CREATE DATABASE `{name}`")

    def mariadb(self, sql, database=None):
        address, port = self.server.split("@")[1].split(":")
        ran = subprocess.run(
            ["mariadb", "--no-defaults", f"--host={address}", f"--port={port}", "--user=smsq", "--password=smsq",
             "--protocol=tcp", "--skip-ssl", "--batch", "--skip-column-names", *([database] if database else [])],
            input=sql, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )
        if ran.returncode:
            raise Failed(f"mariadb: {ran.stderr.strip()}")
        return [tuple(line.split("\t")) for line in ran.stdout.splitlines() if line]

    def admin(self, sql):
        return self.mariadb(sql)

    def query(self, sql):
        return self.mariadb(sql, self.database)

    def query_backup(self, name, sql):
        return self.mariadb(sql, f"{self.database}_{name}")

    def copy(self, source, target):
        """Copies all tables as they are at one instant, with the next ids, as a dump has them."""
        tables = self.admin(
            "SELECT table_name, table_type, coalesce(auto_increment, 0) FROM information_schema.tables "
            f"WHERE table_schema = '{source}'"
        )
        base = [(name, next_id) for name, kind, next_id in tables if kind == "BASE TABLE"]
        lines = [f"CREATE DATABASE `{target}`;"]
        lines += [f"CREATE TABLE `{target}`.`{name}` LIKE `{source}`.`{name}`;" for name, _ in base]
        locks = [f"`{source}`.`{name}` READ, `{target}`.`{name}` WRITE" for name, _ in base]
        lines.append(f"LOCK TABLES {', '.join(locks)};")
        lines += [f"INSERT INTO `{target}`.`{name}` SELECT * FROM `{source}`.`{name}`;" for name, _ in base]
        lines.append("UNLOCK TABLES;")
        # Ids that were given and whose rows are gone.
        lines += [f"ALTER TABLE `{target}`.`{name}` AUTO_INCREMENT = {next_id};" for name, next_id in base if int(next_id)]
        for name, kind, _ in tables:
            if kind == "VIEW":
                (row,) = self.admin(f"SHOW CREATE VIEW `{source}`.`{name}`")
                body = row[1].replace(f"`{source}`.", "")
                lines += [f"USE `{target}`;", f"CREATE SQL SECURITY INVOKER VIEW `{name}` AS {body.split(' AS ', 1)[1]};"]
        self.admin("SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO', foreign_key_checks = 0;\n" + "\n".join(lines))

    def backup(self, name):
        self.copy(self.database, f"{self.database}_{name}")

    def cut(self):
        for (process,) in self.admin(f"SELECT id FROM information_schema.processlist WHERE db = '{self.database}'"):
            try:
                self.admin(f"KILL {process}")
            except Failed:
                pass

    def restore(self, name):
        self.admin(f"DROP DATABASE `{self.database}`")
        self.copy(f"{self.database}_{name}", self.database)

    replace = restore

    def drop(self):
        names = self.admin(f"SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE '{self.database}%'")
        for (name,) in names:
            self.admin(f"DROP DATABASE `{name}`")


ENGINES = {"sqlite": Sqlite, "postgres": Postgres, "mariadb": Mariadb}


def use_servers():
    """Takes the addresses of the servers from the environment, as `tests/run` sets them."""
    Postgres.server = os.environ.get("SMSQ_TEST_POSTGRES")
    Mariadb.server = os.environ.get("SMSQ_TEST_MYSQL")
    return [name for name, url in (("sqlite", "-"), ("postgres", Postgres.server), ("mariadb", Mariadb.server)) if url]


# The configuration.


@dataclasses.dataclass
class Provider:
    """A section of the configuration, for an account of the gateway."""

    name: str
    url: str
    honours: bool = False
    lookup: str | None = None
    # `"since"`: the request has the placeholder `since`.
    receipts: bool | str = False
    batch: int = 0
    rate: list | str | None = None
    senders: list = dataclasses.field(default_factory=list)
    certain: tuple = ()
    timeout: str = "600ms"
    price: str | None = None
    absent_after: str = "2500ms"
    codes: dict = dataclasses.field(default_factory=dict)
    more: str = ""

    def toml(self):
        one = '{ to = "{{ phone }}", text = "{{ content }}", ref = "{{ reference }}", from = "{{ from | optional }}" }'
        if self.batch:
            one = f"{{ messages = [{one}] }}"
        place = "/results/*" if self.batch else ""
        lines = [
            f"[providers.{self.name}]", 'kind = "generic"', f'url = "{self.url}/send"', f"json = {one}",
            f'message_id = "{place}/id"', f'error_code = "{place}/code"', f'timeout = "{self.timeout}"',
            f"honours_reference = {str(self.honours).lower()}",
        ]
        if self.rate:
            lines.append(f"rate = {json.dumps(self.rate)}")
        if self.certain:
            lines.append(f"certain_status = {list(self.certain)}")
        if self.price:
            lines.append(f'price = "{place}/price {place}/currency"')
        if self.senders:
            senders = [f'{{ from = "{name}"' + (f', rate = "{rate}"' if rate else "") + " }" for name, rate in self.senders]
            lines.append(f"senders = [{', '.join(senders)}]")
        lines.append(self.more)
        if self.batch:
            lines += [
                f"[providers.{self.name}.batch]", f"per_call = {self.batch}", 'repeat = "json.messages"',
                'results = "/results"', 'matches = { "/ref" = "{{ reference }}" }',
            ]
        if self.lookup:
            query = {"reference": 'ref = "{{ reference }}"', "phone": 'to = "{{ phone }}"'}[self.lookup]
            lines += [
                f"[providers.{self.name}.lookup]", f'url = "{self.url}/messages"', f"query = {{ {query} }}",
                'list = "/messages"', 'matches = { "/ref" = "{{ reference }}" }', 'message_id = "/id"',
                'error_code = "/code"', 'at = "/created"', 'more = "/next"', 'horizon = "24h"', 'rate = "100/s"',
                'after = "100ms"', f'absent_after = "{self.absent_after}"',
            ]
        if self.receipts:
            lines += [
                f"[providers.{self.name}.receipts]", 'pull = "sweep"', f'url = "{self.url}/receipts"',
                'query = { since = "{{ since }}" }' if self.receipts == "since" else "", 'list = "/receipts"', 'next = "/next"', 'message_id = "/id"',
                'reference = "/ref"', 'phone = "/to"', 'state = "/state"', 'code = "/code"', 'at = "/at"',
                'states = { DELIVRD = "delivered", REJECTD = "rejected" }', 'rate = "50/s"', 'every = "1s"',
            ]
        lines += [
            f"[providers.{self.name}.codes]", 'ok = { class = "accepted" }',
            'duplicate = { class = "duplicate" }',
            'invalid = { class = "recipient", reason = "not a valid number" }',
            'rejected = { class = "recipient", reason = "not accepted" }',
            'no_credit = { class = "account", reason = "no credit" }',
            'down = { class = "unavailable", reason = "maintenance" }',
        ]
        lines += [f'{code} = {{ class = "{name}" }}' for code, name in self.codes.items()]
        return "\n".join(lines) + "\n"


def configuration(providers, route="", limits="", prices=None, default=None, concurrency=8, retry="", more=""):
    """The text of `smsq.toml`. `prices` is the price of a message at every provider."""
    text = f'default_provider = "{default or providers[0].name}"\n[limits]\n{limits}\n'
    text += f'[sender]\nconcurrency = {concurrency}\nlease = "5s"\n'
    text += f'[retry]\nfirst_wait = "20ms"\nmax_wait = "100ms"\nmax_retry_after = "1s"\n{retry}\n'
    text += '[circuit_breaker]\nfirst_probe = "50ms"\nmax_probe = "200ms"\n[auto_pause]\nrejected = 0\nunlisted = 0\n'
    text += more + "".join(provider.toml() for provider in providers)
    if prices:
        text += "".join(f'[prices.{p.name}]\ncurrency = "EUR"\nother = {prices}\n' for p in providers)
    return text + route
