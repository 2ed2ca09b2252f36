"""A gateway that shares no code with smsq: accounts of providers that accept, refuse, answer wrongly and remember.

It decides by itself what it does with a message: a policy returns an `Act`, which says whether the message is accepted
and how the answer arrives. Everything that arrived is in its log, which is what rounds and scenes are judged by.
`python3 tests/gateway/gateway.py --seed 7` runs it alone; then `GET /log` returns the log as JSON.
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import random
import socket
import struct
import threading
import time
import urllib.parse
from email.utils import formatdate

REASONS = {200: "OK", 201: "Created", 202: "Accepted", 302: "Found", 303: "See Other", 429: "Too Many Requests"}
# Longer than smsq reads.
LARGE = 1_300_000
# A gap in the gateway's own clock that counts as a stall, in seconds.
STALL = 0.015
# The list has a known code for each refusal, whatever the answer said.
LISTED = {None: "rejected", "unlisted": "rejected"}
# Answers that end the connection, or break off.
DELIVERIES = (
    "whole", "close", "chunked", "nothing", "reset", "late", "cut", "slow", "large", "chunked_cut", "half_line",
    "garbage", "not_json", "second",
)


@dataclasses.dataclass
class Act:
    """What becomes of one message, and how the gateway answers. `status` and `code` are what the answer says."""

    accept: bool
    status: int = 200
    code: str | None = "ok"
    delivery: str = "whole"
    # Seconds from the arrival to the acceptance; the answer does not wait for it.
    accept_after: float = 0.0
    # Seconds from the arrival to the answer.
    wait: float = 0.0
    headers: dict = dataclasses.field(default_factory=dict)

    @property
    def is_told(self):
        """Whether the answer arrives as it should."""
        return self.delivery in ("whole", "close", "chunked", "second")


def ok(wait=0.0, status=200):
    return Act(True, status, wait=wait)


def lost(delivery="nothing", status=200):
    """The message is accepted, and the answer does not say so."""
    return Act(True, status, delivery=delivery)


def refuse(status, code=None, **more):
    return Act(False, status, code, **more)


@dataclasses.dataclass
class BatchAct:
    """How the gateway answers a request with several messages, whose fates are decided one by one."""

    status: int = 200
    # `whole`, `missing` (one entry is left out), `double` (one is there twice), `order` (another order), `none`.
    results: str = "whole"
    delivery: str = "whole"
    # Nothing is accepted, and the answer has no results.
    refused: str | None = None


@dataclasses.dataclass
class Entry:
    """What the account keeps of a message."""

    id: str
    ref: str
    to: str
    text: str
    state: str
    code: str
    at: float


class Account:
    """An account at a provider: one port, one list of messages, one policy."""

    def __init__(self, gateway, name, policy, batch_policy=None):
        self.gateway = gateway
        self.name = name
        self.policy = policy
        self.batch_policy = batch_policy or (lambda messages, random: BatchAct())
        # It accepts one message per reference.
        self.honours = False
        # What it does with the reference of a message that it refused: "nothing", "duplicate" or "replay".
        self.remembers = "nothing"
        # Refused messages are in its list and in its receipts.
        self.keeps_refused = True
        # "open"; "refused": the account has no credit; "down": a listed code says that it takes nothing.
        self.mode = "open"
        # None, or a function from a message to the price in the answer.
        self.price = None
        # Lookups show "all" entries in any order, all "in order", only the "first" one, or "nothing".
        self.lists = "all"
        self.entries = []
        self.first_answers = {}
        self.attempts = collections.Counter()
        self.late = 1.0
        self.server = None
        self.port = None
        self.writers = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def accepted(self):
        """The phones of accepted messages, one for each acceptance."""
        return [entry["phone"] for entry in self.gateway.log if entry["accepted"] and entry["account"] == self.name]

    # What becomes of a message.

    def decide(self, message, at, is_batch=False):
        """The fate of one message: the entry of the log, the act and the JSON of its answer."""
        phone, ref = message.get("to", ""), message.get("ref") or ""
        self.attempts[phone] += 1
        record = {
            "at": at, "account": self.name, "phone": phone, "ref": ref, "from": message.get("from"),
            "accepted": False, "batch": is_batch, "attempt": self.attempts[phone],
        }
        known = self.first_answers.get(ref) if ref else None
        if known and known["accepted"] and self.honours:
            code = "duplicate" if self.remembers == "duplicate" else "ok"
            act, answer = Act(False, 409 if code == "duplicate" else 200, code), {"id": known["id"], "code": code}
            record["answered"] = "repeated"
        elif known and not known["accepted"] and self.remembers == "duplicate":
            act, answer = Act(False, 409, "duplicate"), {"code": "duplicate", "id": known["id"]}
            record["answered"] = "duplicate of a refusal"
        elif known and not known["accepted"] and self.remembers == "replay":
            act, answer = Act(False, known["status"], known["code"]), known["json"]
            record["answered"] = "refusal repeated"
        else:
            act, answer = self.first(message, phone, ref, at, record)
        record.update(status=act.status, code=act.code, delivery=act.delivery)
        self.gateway.log.append(record)
        return record, act, answer

    def first(self, message, phone, ref, at, record):
        if self.mode == "refused":
            act = refuse(402, "no_credit")
        elif self.mode == "down":
            act = refuse(503, "down")
        else:
            act = self.policy(message, self.attempts[phone], self)
            if record["batch"] and not act.accept and act.code in (None, "unlisted"):
                # An entry of a list has no status.
                act = dataclasses.replace(act, code="invalid")
        entry = Entry(
            f"{self.name}-{len(self.entries) + 1}", ref, phone, message.get("text", ""),
            "accepted" if act.accept else "rejected", "ok" if act.accept else LISTED.get(act.code, act.code),
            at + act.accept_after,
        )
        answer = {"id": entry.id, "code": act.code} if act.accept else {"code": act.code}
        answer = {key: value for key, value in answer.items() if value is not None}
        if act.accept:
            price = self.price(message) if self.price else None
            if price is not None:
                answer.update(price=price, currency="EUR")
            if act.code != "ok":
                answer.pop("id")
        # The first refusal of a reference, until the reference is accepted.
        if act.accept or ref not in self.first_answers:
            self.first_answers[ref] = {
                "accepted": act.accept, "status": act.status, "code": act.code, "json": answer, "id": entry.id,
            }
        record["answered"] = ("accepted" if act.accept else "refused") + f" {act.status} {act.delivery}"
        record["id"] = entry.id

        def accept():
            self.entries.append(entry)
            if act.accept:
                record["accepted"] = True
                record["accepted_at"] = time.time()

        if act.accept_after:
            asyncio.get_running_loop().call_later(act.accept_after, accept)
        elif act.accept or self.keeps_refused:
            accept()
        return act, answer

    # Requests.

    async def send(self, request, at):
        body = json.loads(request.body or b"{}")
        if "messages" in body:
            return self.send_batch(body["messages"], at)
        _, act, answer = self.decide(body, at)
        if act.wait:
            await asyncio.sleep(act.wait)
        payload = answer if act.code else {"detail": "no code"}
        return act.status, payload, act.delivery, act.headers

    def send_batch(self, messages, at):
        plan = self.batch_policy(messages, self.gateway.random_of(self.name, "batch", messages[0].get("to"), len(messages)))
        if plan.refused or self.mode != "open":
            code = plan.refused if self.mode == "open" else {"refused": "no_credit", "down": "down"}[self.mode]
            for message in messages:
                self.gateway.log.append({
                    "at": at, "account": self.name, "phone": message.get("to"), "ref": message.get("ref"),
                    "from": message.get("from"), "accepted": False, "batch": True, "answered": f"batch {code}",
                    "status": plan.status, "code": code, "delivery": plan.delivery,
                })
            return (plan.status if plan.refused else 402), {"code": code}, plan.delivery, {}
        results = []
        for message in messages:
            record, act, answer = self.decide(message, at, True)
            record["delivery"] = plan.delivery
            record["batch_status"], record["batch_results"] = plan.status, plan.results
            results.append({"ref": message.get("ref"), **answer})
        if plan.results == "missing":
            results = results[:-1]
        elif plan.results == "double":
            results.append(results[0])
        elif plan.results == "order":
            results.reverse()
        payload = {} if plan.results == "none" else {"results": results}
        return plan.status, payload, plan.delivery, {}

    def lookup(self, query, at):
        ref, phone = query.get("ref"), query.get("to")
        self.gateway.lookups.append({"at": at, "account": self.name, "ref": ref, "phone": phone})
        found = [
            entry for entry in self.entries
            if (ref is None or entry.ref == ref) and (phone is None or entry.to == phone) and entry.at <= at
        ]
        if self.lists in ("first", "nothing"):
            found = found[: self.lists == "first"]
        elif self.lists == "all":
            self.gateway.random.shuffle(found)
        listed = [{"id": e.id, "ref": e.ref, "to": e.to, "text": e.text, "code": e.code, "created": iso(e.at)} for e in found]
        return 200, {"messages": listed, "next": None}, "whole", {}

    def receipts(self, query, at):
        """All receipts in a random order, some of them twice, on two pages."""
        page = int(query.get("page", "1"))
        if page == 1 or not hasattr(self, "receipt_pages"):
            entries = self.entries
            if self.lists == "nothing":
                entries = []
            elif self.lists == "first":
                entries = {entry.ref: entry for entry in reversed(entries)}.values()
            found = [
                {
                    "id": e.id, "ref": e.ref, "to": e.to, "at": iso(at),
                    "state": "DELIVRD" if e.state == "accepted" else "REJECTD", "code": e.code,
                }
                for e in entries if e.at <= at
            ]
            found += [entry for entry in found if self.gateway.random.random() < 0.1]
            self.gateway.random.shuffle(found)
            half = (len(found) + 1) // 2
            self.receipt_pages = [found[:half], found[half:]]
        following = f"{self.url}/receipts?page=2" if page == 1 else None
        return 200, {"receipts": self.receipt_pages[page - 1], "next": following}, "whole", {}

    async def answer(self, request, at):
        url = urllib.parse.urlsplit(request.target)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/send":
            return await self.send(request, at)
        if url.path == "/messages":
            return self.lookup(query, at)
        if url.path == "/receipts":
            return self.receipts(query, at)
        if url.path == "/log":
            return 200, self.gateway.everything(), "whole", {}
        if url.path == "/mode":
            self.mode = query["is"]
            return 200, {"mode": self.mode}, "whole", {}
        return 404, {"code": "no such path"}, "whole", {}

    # Connections.

    async def serve(self, reader, writer):
        self.writers.add(writer)
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        has_second = False
        try:
            while True:
                request = await read_request(reader)
                status, payload, delivery, headers = await self.answer(request, time.time())
                if has_second:
                    # The second answer to the request before, of a proxy that then closes the connection.
                    status, payload, delivery = 400, {"code": "invalid"}, "close"
                has_second = delivery == "second"
                if not await deliver(writer, status, payload, delivery, headers, self):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def open(self):
        if self.server is None:
            self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port or 0, backlog=512)
            self.port = self.server.sockets[0].getsockname()[1]

    async def close(self):
        """Refuses connections, and closes those that are open."""
        server, self.server = self.server, None
        if server is not None:
            server.close()
            for writer in list(self.writers):
                writer.close()


@dataclasses.dataclass
class Request:
    method: str
    target: str
    body: bytes


async def read_request(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    length = 0
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    return Request(method, target, await reader.readexactly(length))


def head_of(status, headers):
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Answer')}", f"Date: {formatdate(usegmt=True)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def deliver(writer, status, payload, delivery, headers, account):
    """Writes an answer in one of the `DELIVERIES`. Returns whether the connection stays open."""
    body = json.dumps(payload).encode()
    headers = {"Content-Type": "application/json", **headers}
    if status in (300, 301, 302, 303, 307, 308):
        headers.setdefault("Location", f"{account.url}/messages")
    if status == 304:
        body = b""
    if delivery == "not_json":
        body = b"<html><body>Thank you, your message is on its way.</body></html>"
    elif delivery == "large":
        # What matters is behind what is not read.
        body = json.dumps({"padding": "x" * LARGE, **payload}).encode()
    if delivery == "nothing":
        return False
    if delivery == "reset":
        option = struct.pack("ii", 1, 0)
        writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        writer.transport.abort()
        return False
    if delivery == "half_line":
        writer.write(b"HTTP/1.1 20")
    elif delivery == "garbage":
        writer.write(b"\x16\x03\x01 certainly no HTTP\r\n\r\n")
    elif delivery in ("chunked", "chunked_cut"):
        writer.write(head_of(status, {**headers, "Transfer-Encoding": "chunked"}))
        half = len(body) // 2
        writer.write(b"%x\r\n%s\r\n" % (half, body[:half]))
        if delivery == "chunked":
            writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - half, body[half:]))
    else:
        if delivery == "late":
            await asyncio.sleep(account.late)
        if delivery == "close":
            headers["Connection"] = "close"
        writer.write(head_of(status, {**headers, "Content-Length": len(body)}))
        if delivery in ("cut", "slow"):
            writer.write(body[: len(body) // 2])
            if delivery == "slow":
                await writer.drain()
                await asyncio.sleep(account.late)
                writer.write(body[len(body) // 2 :])
        else:
            writer.write(body)
    await writer.drain()
    return delivery in ("whole", "chunked", "late", "slow", "large", "not_json", "second")


def iso(at):
    millis = int(at * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(millis // 1000)) + f".{millis % 1000:03}Z"


class Gateway:
    """Accounts, their common log, and the thread that serves them."""

    def __init__(self, seed=0):
        self.seed = seed
        self.random = random.Random(f"{seed}|gateway")
        self.accounts = {}
        self.log = []
        self.lookups = []
        # When the gateway did not run: the end and the length, in seconds.
        self.stalls = []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.create_task(self.watch())
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    async def watch(self):
        last = time.time()
        while True:
            await asyncio.sleep(0.005)
            now = time.time()
            if now - last > STALL:
                self.stalls.append((now, now - last))
            last = now

    def random_of(self, *names):
        """A source of random numbers that depends on the seed and these names only."""
        return random.Random("|".join(map(str, (self.seed, *names))))

    def stop(self):
        """Closes all accounts; the log stays."""
        for name in self.accounts:
            self.close(name)
        self.loop.call_soon_threadsafe(self.loop.stop)

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def add(self, name, policy, batch_policy=None, port=None):
        account = Account(self, name, policy, batch_policy)
        account.port = port
        self.accounts[name] = account
        self.call(account.open())
        return account

    def open(self, name):
        self.call(self.accounts[name].open())

    def close(self, name):
        self.call(self.accounts[name].close())

    def accepted(self, account=None):
        """Acceptances, in their order."""
        found = [entry for entry in self.log if entry["accepted"] and account in (None, entry["account"])]
        return sorted(found, key=lambda entry: entry["accepted_at"])

    def everything(self):
        return {"seed": self.seed, "log": self.log, "lookups": self.lookups, "stalls": self.stalls}


def main():
    from policies import Faults, random_batch_policy, random_policy

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="0")
    parser.add_argument("--accounts", default="a,b", help="the names of the accounts")
    parser.add_argument("--port", type=int, default=0, help="of the first account; the others have the next ones")
    parser.add_argument("--faults", type=float, default=0.3, help="the share of messages that are not simply accepted")
    arguments = parser.parse_args()
    gateway = Gateway(arguments.seed)
    faults = Faults(share=arguments.faults)
    for index, name in enumerate(arguments.accounts.split(",")):
        port = arguments.port + index if arguments.port else None
        account = gateway.add(name, random_policy(faults), random_batch_policy(faults), port)
        print(f"{name} {account.url}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
