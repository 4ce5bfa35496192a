"""A member of a consumer group with our client: JSON requests on the input, rows on the output.

It speaks what `GroupMember.java` speaks, and writes the same records. The arguments are how often it balances, how
often it renews its locks and how long it relies on one, in ms, and `async` or `plain` for the kind of its handler.
`start` answers with the client id and the clock; `balance` gives the queues it owns, those its last balance gave it and
among whom; `stop` ends it cleanly, and SIGTERM too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from eruca import ClientOptions, Consumer, Flow, Message, MessageQueue, Offsets, Rebalance, Retry
from eruca._client.group import locking
from eruca._core.allocation import ConfigStrategy, MachineRoomStrategy, Strategy, find_strategy, sort_queues
from eruca._wire.names import RETRY_PREFIX

DRAIN_SECONDS = 20.0
LINE_MAX = 1024 * 1024
# Ordered: every few messages one takes several times as long, so that a queue is wanted while its handler works.
SLOW_EVERY, SLOW_TIMES = 50, 50


class Remembered:
    """A strategy that remembers what it answered last, and for which members."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.name = strategy.name
        self.allotted: list[MessageQueue] = []
        self.clients: list[str] = []

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Give the part of one client, as the strategy says."""
        found = self._strategy.allocate(group, client_id, queues, clients)
        if not queues[0].topic.startswith(RETRY_PREFIX):
            self.allotted, self.clients = list(found), list(clients)
        return found


class GroupMember:
    """A consumer that writes down what its handler does."""

    def __init__(self, request: dict[str, Any], rebalance_ms: int, lock_renew_ms: int, *, plain: bool) -> None:
        # One write a line, so that what was done before the process was killed is in the file.
        self._records = os.open(request["records"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = itertools.count()
        self._work_s: float = request["workMs"] / 1000
        self._is_ordered = bool(request["ordered"])
        self._never = threading.Event()
        self._strategy = Remembered(_find_strategy(request["strategy"], request["topic"]))
        # What the listener was told last.
        self._told: list[MessageQueue] = []
        self.consumer = Consumer(
            request["nameServer"],
            group=request["group"],
            start="earliest",
            drain=DRAIN_SECONDS,
            flow=Flow(count_max=request["cachedMax"], error_pause=0.1, ordered_concurrency=request["threads"]),
            options=ClientOptions(ip="127.0.0.1", heartbeat_interval=request["heartbeatMs"] / 1000, route_interval=1.0),
            offsets=Offsets(interval=request["persistMs"] / 1000),
            rebalance=Rebalance(
                strategy=self._strategy,
                interval=rebalance_ms / 1000,
                lock_interval=lock_renew_ms / 1000,
                on_change=self._listen,
                exclusive=bool(request["exclusive"]),
            ),
            retry=Retry(suspend=0.05),
        )
        register = self.consumer.handler(request["topic"], concurrency=request["threads"], ordered=self._is_ordered)
        if plain:
            register(self._take_here)
        else:
            register(self._take)

    async def _take(self, message: Message) -> None:
        number = self._begin(message)
        await asyncio.sleep(self._reckon(number))
        self._write("-", number, time.monotonic_ns())

    def _take_here(self, message: Message) -> None:
        number = self._begin(message)
        self._never.wait(self._reckon(number))
        self._write("-", number, time.monotonic_ns())

    def _reckon(self, number: int) -> float:
        """How long the work on a message takes."""
        return self._work_s * (SLOW_TIMES if self._is_ordered and number % SLOW_EVERY == SLOW_EVERY - 1 else 1)

    def _begin(self, message: Message) -> int:
        number, queue = next(self._numbers), message.queue
        where = (queue.topic, queue.broker_name, queue.queue_id, message.offset, message.delivery - 1)
        what = (message.message_id, " ".join(message.keys), message.body.decode())
        self._write("+", number, time.monotonic_ns(), *where, *what)
        return number

    def _write(self, *fields: object) -> None:
        os.write(self._records, json.dumps(fields).encode() + b"\n")

    def _listen(self, assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        self._told = sorted({*self._told, *assigned} - {*revoked})

    def balance(self) -> dict[str, Any]:
        """What it owns now, what its last balance said, and what the listener was told."""
        strategy = self._strategy
        return {
            "owned": _describe(self.consumer.queues),
            "allotted": _describe(strategy.allotted),
            "clients": strategy.clients,
            "told": _describe(self._told),
        }


def _find_strategy(name: str, topic: str) -> Strategy:
    kind, *words = name.split(" ")
    if kind == "machine-room":
        return MachineRoomStrategy(words)
    if kind == "config":
        return ConfigStrategy([MessageQueue(words[0], int(number), topic) for number in words[1:]])
    return find_strategy(name)


def _describe(queues: Iterable[MessageQueue]) -> list[tuple[str, str, int]]:
    return [(queue.topic, queue.broker_name, queue.queue_id) for queue in sort_queues(queues)]


class Program:
    """Answers the lines of the process that started it."""

    def __init__(self, rebalance_ms: str, lock_renew_ms: str, lock_rely_ms: str, kind: str) -> None:
        # Shorter than a user's, like all times here.
        locking.LOCK_S = int(lock_rely_ms) / 1000
        self._times = int(rebalance_ms), int(lock_renew_ms)
        self._plain = kind == "plain"
        self._member: GroupMember | None = None

    async def run(self) -> None:
        """Answer until the input ends, or until a signal wants the end."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(LINE_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        answering = loop.create_task(self._answer_all(reader))
        loop.add_signal_handler(signal.SIGTERM, answering.cancel)
        try:
            await answering
        except asyncio.CancelledError:
            if self._member is not None:
                await self._member.consumer.close()

    async def _answer_all(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            try:
                row = await self._handle(json.loads(line))
            except Exception as error:
                logging.exception("a request failed")
                _say({"error": repr(error)})
                continue
            if row is not None:
                _say({"row": row})
            _say({"done": 0 if row is None else 1})

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any] | None:
        action = request["do"]
        if action == "start":
            self._member = member = GroupMember(request, *self._times, plain=self._plain)
            await member.consumer.start()
            return {"clientId": member.consumer._session.client_id, "clock": time.monotonic_ns()}
        assert self._member is not None
        if action == "balance":
            return self._member.balance()
        assert action == "stop", f"no such request: {request}"
        await self._member.consumer.close()
        return None


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(Program(*sys.argv[1:]).run())
