"""Parts of `make torture ONLY=delivery`: messages that come later, by a level or by any time."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from eruca import Message, Producer, Receipt
from eruca._wire.names import SCHEDULE_TOPIC
from eruca.errors import ErucaError
from tests.clients.stage import create_topic, make_consumer
from tests.torture.deliverystage import LEVELS_S, SEND_SECONDS, Part


class Delays(Part):
    """Delayed messages: all that are acknowledged come, and none before its time by the broker's own clock."""

    name = "delays"
    _LEVELS = (1, 2, 5)

    async def start(self) -> None:
        """Make the topic and begin."""
        self._levels: dict[bytes, int] = {}
        self._acknowledged: dict[bytes, Receipt] = {}
        self._came: Counter[bytes] = Counter()
        self._repeated = 0
        self._producer = Producer(self.stage.nameserver, group=self.name, timeout=SEND_SECONDS)
        await self._producer.start()
        await create_topic(self._producer, self.name, 2)
        self._consumer = make_consumer(self.stage.nameserver, self.name)

        @self._consumer.handler(self.name)
        async def take(message: Message) -> None:
            self._came[message.body] += 1

        await self._consumer.start()
        self.spawn(self._feed())

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._send()
            await self.rest(2, 20)

    def press(self) -> None:
        """A few more, some of which are being stored when the kill comes."""
        for _ in range(8):
            self.spawn(self._send())

    async def _send(self) -> None:
        body = self.name_body()
        self._levels[body] = level = self.rng.choice(self._LEVELS)
        try:
            self._acknowledged[body] = await self._producer.send(self.name, body, delay_level=level)
        except ErucaError:
            return

    def count_done(self) -> int:
        """Messages that came."""
        return self._came.total()

    def count_under_way(self) -> int:
        """Those that are not due."""
        return len(self._acknowledged.keys() - self._came.keys())

    async def settle(self) -> None:
        """Wait until all have come."""
        await self.end_tasks()
        await self.wait_for(lambda: self._acknowledged.keys() - self._came.keys(), "acknowledged and never delivered")

    async def check(self) -> None:
        """Compare when each copy was stored with when it was due."""
        due: dict[bytes, int] = {}
        broker_name = next(iter(self._acknowledged.values())).queue.broker_name
        for level in self._LEVELS:
            for message in await self.stage.read_queue(SCHEDULE_TOPIC, level - 1, broker_name):
                # One that was sent twice, because the first answer was lost, has two times; the first one counts.
                due.setdefault(message.body, message.record.store_timestamp + LEVELS_S[level - 1] * 1000)
        copies = await self.stage.read_topic(self.name)
        early = [m.body for m in copies if m.record.store_timestamp < due.get(m.body, 2**62)]
        self.blame_all("early", early)
        self.blame_all("nobody sent", {m.body for m in copies} - self._levels.keys())
        self._repeated = len(copies) - len({m.body for m in copies})

    async def close(self) -> None:
        """End the clients."""
        await self._consumer.close()
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        return f"{len(self._acknowledged)} delayed and delivered, none early, {self._repeated} more than once"


class Timers(Part):
    """Any delay: all that are acknowledged come, none early, and none that was cancelled before it was due."""

    name = "timers"
    _DELAY_MS = (300, 3000)

    async def start(self) -> None:
        """Make the topic and begin."""
        self._delays_ms: dict[bytes, int] = {}
        self._acknowledged: set[bytes] = set()
        # Somebody wanted to cancel it; the broker may have heard of it or not, or too late.
        self._doubtful: set[bytes] = set()
        # When the broker said that it is cancelled, in milliseconds since the epoch.
        self._cancelled_ms: dict[bytes, int] = {}
        self._came: Counter[bytes] = Counter()
        self._not_delivered = self._repeated = 0
        self._producer = Producer(self.stage.nameserver, group=self.name, timeout=SEND_SECONDS)
        await self._producer.start()
        await create_topic(self._producer, self.name, 2)
        self._consumer = make_consumer(self.stage.nameserver, self.name)

        @self._consumer.handler(self.name)
        async def take(message: Message) -> None:
            self._came[message.body] += 1

        await self._consumer.start()
        self.spawn(self._feed())

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._send()
            await self.rest(2, 20)

    def press(self) -> None:
        """A few more, some of which are being stored when the kill comes."""
        for _ in range(8):
            self.spawn(self._send())

    async def _send(self) -> None:
        body = self.name_body()
        self._delays_ms[body] = delay_ms = self.rng.randint(*self._DELAY_MS)
        is_cancelled = self.rng.random() < 0.2
        try:
            receipt = await self._producer.send(self.name, body, timer=timedelta(milliseconds=delay_ms))
            self._acknowledged.add(body)
            if is_cancelled:
                self.spawn(self._cancel(body, receipt))
        except ErucaError:
            return

    async def _cancel(self, body: bytes, receipt: Receipt) -> None:
        await self.rest(0, 500)
        self._doubtful.add(body)
        try:
            await self._producer.cancel_delayed(self.name, receipt)
            self._cancelled_ms[body] = self.stage.looker._session.clock.now_ms()
        except ErucaError:
            return

    def _list_missing(self) -> set[bytes]:
        return self._acknowledged - self._doubtful - self._came.keys()

    def count_done(self) -> int:
        """Messages that came."""
        return self._came.total()

    def count_under_way(self) -> int:
        """Those that are not due."""
        return len(self._list_missing())

    async def settle(self) -> None:
        """Wait until all have come, and those that were cancelled would have."""
        await self.end_tasks()
        await self.wait_for(self._list_missing, "acknowledged and never delivered")
        await asyncio.sleep(self._DELAY_MS[1] / 1000 + 0.5)

    async def check(self) -> None:
        """Compare when each copy was stored with when it was due."""
        copies = await self.stage.read_topic(self.name)
        self.blame_all("nobody sent", {m.body for m in copies} - self._delays_ms.keys())
        # Born before it was stored, so it is due this much after that, or later. One that was sent twice, because its
        # sender got no answer, was born twice.
        due_ms: dict[bytes, int] = {}
        for message in copies:
            body, record = message.body, message.record
            own_ms = record.born_timestamp + self._delays_ms.get(body, 0)
            due_ms[body] = min(own_ms, due_ms.get(body, own_ms))
            if record.store_timestamp < own_ms:
                self.blame_all("early", [body])
        in_vain = [body for body in due_ms if self._cancelled_ms.get(body, 2**62) < due_ms[body]]
        self.blame_all("cancelled and delivered", in_vain)
        self._not_delivered = len(self._cancelled_ms.keys() - due_ms.keys())
        self._repeated = len(copies) - len(due_ms)

    async def close(self) -> None:
        """End the clients."""
        await self._consumer.close()
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        return (
            f"{len(self._acknowledged)} with any delay, none early, {self._not_delivered} cancelled and not delivered,"
            f" {self._repeated} more than once"
        )
