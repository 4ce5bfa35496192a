"""Parts of `make torture ONLY=delivery`: sends of every kind, transactions, and producers that die."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from eruca import Message, Outgoing, Producer, Receipt
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca._wire.headers import QueryMessageHeader
from eruca.errors import ErucaError
from tests.clients.stage import create_topic, make_consumer
from tests.paths import REPOSITORY
from tests.torture.deliverystage import CHECK_INTERVAL_MS, SEND_SECONDS, Part
from tests.torture.killedbroker import make_environment

_QUERY_MAX = 20
_BATCH = 5


class Sends(Part):
    """Every kind of send: what has a receipt is in its queue at the offset of the receipt, whatever the flush mode."""

    name = "sends"

    async def start(self) -> None:
        """Make the topic and begin."""
        self._attempted: set[bytes] = set()
        self._receipts: dict[bytes, Receipt] = {}
        self._batches: dict[bytes, Receipt] = {}
        self._keys: dict[str, bytes] = {}
        self._refused = 0
        self._kinds: Counter[str] = Counter()
        self._producer = Producer(self.stage.nameserver, group=self.name, timeout=SEND_SECONDS)
        await self._producer.start()
        await create_topic(self._producer, self.name, 4)
        for _ in range(2):
            self.spawn(self._feed())

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._send()
            await self.rest(2, 20)

    def press(self) -> None:
        """Many at once, and more after those."""
        for _ in range(8):
            self.spawn(self._send_several())

    async def _send_several(self) -> None:
        for _ in range(12):
            await self._send()

    async def _send(self) -> None:
        kind = self.rng.choice(("plain", "shard", "keys", "large", "batch", "oneway", "no wait"))
        body = self.name_body()
        self._attempted.add(body)
        self.under_way += 1
        try:
            await self._send_kind(kind, body)
            self._kinds[kind] += 1
        except ErucaError:
            self._refused += 1
        finally:
            self.under_way -= 1

    async def _send_kind(self, kind: str, body: bytes) -> None:
        producer = self._producer
        match kind:
            case "batch":
                bodies = [body + b"." + str(number).encode() for number in range(_BATCH)]
                self._attempted.update(bodies)
                (receipt,) = await producer.send_batch(self.name, [Outgoing(each) for each in bodies])
                self._batches[body] = receipt
            case "oneway":
                await producer.send_oneway(self.name, body)
            case "large":
                large = body + b" " + b"large " * 2000
                self._attempted.add(large)
                self._receipts[large] = await producer.send(self.name, large)
            case "keys":
                key = body.decode()
                self._receipts[body] = await producer.send(self.name, body, keys=[key])
                self._keys[key] = body
            case _:
                shard = str(self.rng.randrange(8)) if kind == "shard" else None
                self._receipts[body] = await producer.send(self.name, body, shard=shard, wait=kind != "no wait")

    def count_done(self) -> int:
        """Receipts."""
        return len(self._receipts) + len(self._batches)

    def count_under_way(self) -> int:
        """Sends without an answer."""
        return self.under_way

    async def settle(self) -> None:
        """Wait for the last answers."""
        await self.end_tasks()

    async def check(self) -> None:
        """Every receipt must be right, and nothing may be there that nobody sent."""
        found = {(m.queue.queue_id, m.offset): m.body for m in await self.stage.read_topic(self.name)}
        wrong = [
            (body[:40], receipt.queue.queue_id, receipt.offset)
            for body, receipt in self._receipts.items()
            if found.get((receipt.queue.queue_id, receipt.offset)) != body
        ]
        self.blame_all("acknowledged, but not where the receipt says", wrong)
        for body, receipt in self._batches.items():
            place = receipt.queue.queue_id
            bodies = [found.get((place, receipt.offset + number)) for number in range(_BATCH)]
            if bodies != [body + b"." + str(number).encode() for number in range(_BATCH)]:
                self.blame(f"the batch {body!r} at offset {receipt.offset} of queue {place} is {bodies}")
        self.blame_all("nobody sent", set(found.values()) - self._attempted)
        by_queue: dict[int, list[int]] = {}
        for queue_id, offset in found:
            by_queue.setdefault(queue_id, []).append(offset)
        for queue_id, offsets in by_queue.items():
            if offsets != list(range(len(offsets))):
                self.blame(f"queue {queue_id} has holes")
        await self._check_keys()

    async def _check_keys(self) -> None:
        calls = self.stage.looker._session.calls
        for key, body in self.rng.sample(sorted(self._keys.items()), min(_QUERY_MAX, len(self._keys))):
            header = QueryMessageHeader(topic=self.name, key=key, max_num=32, begin_timestamp=0, end_timestamp=2**62)
            if body not in [record.body for record in await calls.query_messages(self.stage.broker, header)]:
                self.blame(f"{body!r} is not found by its key")

    async def close(self) -> None:
        """End the producer."""
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        acknowledged = len(self._receipts) + len(self._batches)
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self._kinds.items()))
        return f"{acknowledged} receipts, {self._refused} failed ({kinds})"


@dataclass
class _Transaction:
    """What the client knows of one transaction: its "database"."""

    final: Decision
    # How often it does not know, before it does.
    unknowns: int
    fails: bool
    # The half has a receipt.
    is_stored: bool = False
    # The local work is done.
    is_done: bool = False
    # Nobody will do the local work any more.
    is_over: bool = False
    # Somebody told the broker to commit.
    is_committed: bool = False
    asked: int = 0


class _LocalWorkFailed(Exception):
    """As wanted."""


class Transactions(Part):
    """What was committed comes, what was not does not: the broker asks when a kill came between."""

    name = "transactions"

    async def start(self) -> None:
        """Make the topic and begin."""
        self._ledger: dict[bytes, _Transaction] = {}
        self._came: Counter[bytes] = Counter()
        self._asked_at = 0.0
        self._repeated = 0
        self._producer = TransactionalProducer(
            self.stage.nameserver, group=self.name, check=self._check, timeout=SEND_SECONDS
        )
        await self._producer.start()
        await create_topic(self._producer, self.name, 2)
        self._consumer = make_consumer(self.stage.nameserver, self.name)

        @self._consumer.handler(self.name)
        async def take(message: Message) -> None:
            self._came[message.body] += 1
            found = self._ledger.get(message.body)
            if found is None or not found.is_committed:
                self.blame(f"{message.body!r} came although nobody committed it: {found}")

        await self._consumer.start()
        for _ in range(2):
            self.spawn(self._feed())

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._run_one()
            await self.rest(2, 30)

    def press(self) -> None:
        """A few at once."""
        for _ in range(12):
            self.spawn(self._run_one())

    async def _run_one(self) -> None:
        rng, body = self.rng, self.name_body()
        final = rng.choice((Decision.COMMIT, Decision.ROLLBACK))
        self._ledger[body] = entry = _Transaction(final, rng.choice((0, 0, 1, 2)), fails=rng.random() < 0.1)

        async def work(receipt: Receipt) -> Decision:
            entry.is_stored = True
            await self.rest(0, 10)
            if entry.fails:
                raise _LocalWorkFailed
            entry.is_done = True
            if entry.unknowns:
                return Decision.UNKNOWN
            entry.is_committed = final is Decision.COMMIT
            return final

        try:
            await self._producer.send_transaction(self.name, body, local=work)
        except (ErucaError, _LocalWorkFailed):
            pass
        finally:
            entry.is_over = True

    async def _check(self, message: Message) -> Decision:
        self._asked_at = asyncio.get_running_loop().time()
        entry = self._ledger[message.body]
        entry.asked += 1
        if not entry.is_done:
            return Decision.ROLLBACK if entry.is_over else Decision.UNKNOWN
        if entry.unknowns:
            entry.unknowns -= 1
            return Decision.UNKNOWN
        entry.is_committed |= entry.final is Decision.COMMIT
        return entry.final

    def _list_wanted(self) -> set[bytes]:
        return {b for b, entry in self._ledger.items() if entry.is_done and entry.final is Decision.COMMIT}

    def count_done(self) -> int:
        """Messages that came."""
        return self._came.total()

    def count_under_way(self) -> int:
        """Halves that are not decided, as far as is known."""
        return len(self._list_wanted() - self._came.keys()) + sum(not e.is_over for e in self._ledger.values())

    async def settle(self) -> None:
        """Wait until all that were committed have come, and the broker has nothing more to ask."""
        await self.end_tasks()
        await self.wait_for(lambda: self._list_wanted() - self._came.keys(), "committed and never delivered")
        await wait_until_quiet(lambda: self._asked_at)

    async def check(self) -> None:
        """Look at the topic itself, too."""
        counts = Counter([message.body for message in await self.stage.read_topic(self.name)])
        wanted = self._list_wanted()
        self.blame_all("committed and lost", wanted - counts.keys())
        self.blame_all("rolled back and visible", counts.keys() - wanted)
        self._repeated = counts.total() - len(counts)

    async def close(self) -> None:
        """End the clients."""
        await self._consumer.close()
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        entries = list(self._ledger.values())
        wanted, stored = len(self._list_wanted()), sum(entry.is_stored for entry in entries)
        return (
            f"{stored} halves, {wanted} committed, {stored - wanted} rolled back, {len(entries) - stored} not"
            f" acknowledged, {sum(entry.asked for entry in entries)} questions answered,"
            f" {self._repeated} committed messages more than once"
        )


async def wait_until_quiet(find_last: Any) -> None:
    """Wait until the broker has asked nothing for a few of its intervals."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    quiet_s = 4 * CHECK_INTERVAL_MS / 1000
    while loop.time() - max(started, find_last()) < quiet_s:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


class Moved(Part):
    """A producer process dies with open halves, then the broker does; one that starts after that is asked."""

    name = "moved"
    _HALVES = 6

    async def start(self) -> None:
        """Make the topic."""
        self._halves: dict[bytes, Decision] = {}
        self._asked: Counter[bytes] = Counter()
        self._asked_at = 0.0
        self._repeated = 0
        self._heir: TransactionalProducer | None = None
        await create_topic(self.stage.looker, self.name, 1)

    async def prepare(self) -> None:
        """Have a process send halves and die; then nobody of the group is left."""
        if self._heir is not None:
            await self._heir.close()
            self._heir = None
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.torture.dyingproducer",
            self.stage.nameserver,
            self.name,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=REPOSITORY,
            env=make_environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        bodies = [self.name_body() for _ in range(self._HALVES)]
        process.stdin.write(b"\n".join(bodies) + b"\n")
        stored: list[bytes] = []
        async with asyncio.timeout(30):
            while len(stored) < len(bodies):
                line = await process.stdout.readline()
                assert line, "the producer ended by itself"
                stored.append(line.strip())
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        for body in stored:
            self._halves[body] = self.rng.choice((Decision.COMMIT, Decision.ROLLBACK))

    def count_under_way(self) -> int:
        """Halves nobody was asked about."""
        return len(self._halves.keys() - self._asked.keys())

    async def on_restart(self) -> None:
        """Somebody else of the group comes."""
        self._heir = TransactionalProducer(self.stage.nameserver, group=self.name, check=self._check)
        await self._heir.start()

    async def _check(self, message: Message) -> Decision:
        self._asked_at = asyncio.get_running_loop().time()
        self._asked[message.body] += 1
        if message.body not in self._halves:
            self.blame(f"asked about {message.body!r}, which nobody sent")
        return self._halves.get(message.body, Decision.ROLLBACK)

    async def settle(self) -> None:
        """Wait until it was asked about every one, and no more."""
        await self.wait_for(lambda: self._halves.keys() - self._asked.keys(), "stored and never asked about")
        await wait_until_quiet(lambda: self._asked_at)

    async def check(self) -> None:
        """What the heir decided counts."""
        counts = Counter([message.body for message in await self.stage.read_topic(self.name)])
        wanted = {body for body, decision in self._halves.items() if decision is Decision.COMMIT}
        self.blame_all("committed and lost", wanted - counts.keys())
        self.blame_all("rolled back and visible", counts.keys() - wanted)
        self._repeated = counts.total() - len(counts)

    async def close(self) -> None:
        """End the heir."""
        if self._heir is not None:
            await self._heir.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        return (
            f"{len(self._halves)} halves of producers that died, {self._asked.total()} questions answered by the next,"
            f" {self._repeated} committed messages more than once"
        )
