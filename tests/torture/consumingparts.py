"""Parts of `make torture ONLY=delivery`: retries, order, and filters."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from eruca import Consumer, Message, MessageQueue, Producer, Retry, Sql
from eruca._wire.names import DLQ_PREFIX
from eruca.errors import ErucaError
from tests.clients.stage import create_topic, make_consumer
from tests.torture.deliverystage import SEND_SECONDS, Part

_NEVER = 99


class Retries(Part):
    """Messages that fail are delivered again as often as they fail, or become dead letters.

    Handlers do it in one group; in another every message is given back by hand, so that it is known which of that was
    acknowledged.
    """

    name = "retries"
    _BY_HAND = "retries-by-hand"
    _ATTEMPTS = 3

    async def start(self) -> None:
        """Make the topics and begin."""
        self._fails: dict[bytes, int] = {}
        self._acknowledged: set[bytes] = set()
        self._attempts: defaultdict[bytes, set[int]] = defaultdict(set)
        self._done: Counter[bytes] = Counter()
        self._given_back: Counter[tuple[bytes, int]] = Counter()
        self._came_by_hand: Counter[tuple[bytes, int]] = Counter()
        self._dead = 0
        self._producer = Producer(self.stage.nameserver, group=self.name, timeout=SEND_SECONDS)
        await self._producer.start()
        await create_topic(self._producer, self.name, 2)
        nameserver = self.stage.nameserver
        self._consumer = make_consumer(nameserver, self.name, retry=Retry(max_deliveries=self._ATTEMPTS + 1))

        @self._consumer.handler(self.name)
        async def work(message: Message) -> None:
            self._attempts[message.body].add(message.delivery - 1)
            if message.delivery <= self._fails[message.body]:
                raise ValueError("as wanted")
            self._done[message.body] += 1

        self._by_hand = make_consumer(nameserver, self._BY_HAND, self.name)
        await self._consumer.start()
        await self._by_hand.start()
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self.spawn(self._feed())

    async def _read(self) -> None:
        async for message in self._by_hand:
            key = (message.body, message.delivery - 1)
            self._came_by_hand[key] += 1
            try:
                if message.delivery <= min(2, self._fails[message.body]):
                    await message.retry(delay_level=1)
                    self._given_back[key] += 1
                else:
                    await message.ack()
            except ErucaError:
                continue  # its redelivery was not confirmed; it comes again with the queue

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._send()
            await self.rest(5, 40)

    def press(self) -> None:
        """A few at once; they fail at once."""
        for _ in range(8):
            self.spawn(self._send())

    async def _send(self) -> None:
        body = self.name_body()
        self._fails[body] = self.rng.choice((0, 1, 1, 2, 3, _NEVER))
        try:
            await self._producer.send(self.name, body)
            self._acknowledged.add(body)
        except ErucaError:
            return

    def _list_missing(self) -> list[bytes]:
        last = {body: min(self._fails[body], self._ATTEMPTS) for body in self._acknowledged}
        return [body for body, attempts in last.items() if attempts not in self._attempts[body]]

    def _list_missing_by_hand(self) -> list[tuple[bytes, int]]:
        return [(body, times) for body, times in self._given_back if not self._came_by_hand[body, times + 1]]

    def count_done(self) -> int:
        """Messages that came, in both groups."""
        return min(self._came_by_hand.total(), self._done.total())

    def count_under_way(self) -> int:
        """Messages that will be delivered again."""
        return len(self._list_missing()) + len(self._list_missing_by_hand())

    async def settle(self) -> None:
        """Wait until all have come as often as they must."""
        await self.end_tasks()
        await self.wait_for(self._list_missing, "did not come again")
        await self.wait_for(self._list_missing_by_hand, "given back, acknowledged, and lost")

    async def check(self) -> None:
        """Check the dead letters, and that no attempt was left out."""
        dead = {body for body in self._acknowledged if self._fails[body] == _NEVER}
        found: Counter[bytes] = Counter()
        for _ in range(100):
            found = Counter([m.body for m in await self.stage.read_topic(DLQ_PREFIX + self.name)])
            if found.keys() >= dead:
                break
            await asyncio.sleep(0.1)
        self.blame_all("dead and lost", dead - found.keys())
        self.blame_all("dead too early", {body for body in found if self._fails[body] != _NEVER})
        for body in self._acknowledged:
            expected = set(range(min(self._fails[body], self._ATTEMPTS) + 1))
            if self._attempts[body] != expected:
                self.blame(f"{body!r} fails {self._fails[body]} times and came at attempts {self._attempts[body]}")
        self._dead = len(dead)

    async def close(self) -> None:
        """End the clients."""
        await self._by_hand.close()
        await self._reading
        await self._consumer.close()
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        again = sum(len(attempts) - 1 for attempts in self._attempts.values())
        return (
            f"{len(self._acknowledged)} messages came again {again} times, {self._dead} dead letters;"
            f" {self._given_back.total()} acknowledged send-backs by hand"
        )


class Ordered(Part):
    """Ordered consuming: nothing is skipped, and a queue goes back only after a kill, once."""

    name = "ordered"
    _QUEUES = 2

    async def start(self) -> None:
        """Make the topic and begin."""
        self._sent: Counter[int] = Counter()
        self._seen: defaultdict[int, list[tuple[float, int, int]]] = defaultdict(list)
        self._working: set[int] = set()
        self._hurries = 0
        self._repeated = 0
        self._producer = Producer(self.stage.nameserver, group=self.name, timeout=SEND_SECONDS)
        await self._producer.start()
        await create_topic(self._producer, self.name, self._QUEUES)
        self._consumer = make_consumer(self.stage.nameserver, self.name)

        @self._consumer.handler(self.name, ordered=True)
        async def work(message: Message) -> None:
            at = asyncio.get_running_loop().time()
            self._seen[message.queue.queue_id].append((at, message.offset, int(message.body)))
            self._working.add(message.queue.queue_id)
            await asyncio.sleep(0.004)
            self._working.discard(message.queue.queue_id)

        await self._consumer.start()
        for queue in await self._producer.list_queues(self.name):
            self.spawn(self._feed(queue))

    async def _feed(self, queue: MessageQueue) -> None:
        """Consecutive numbers; a failed one is sent again, so it may be there twice, side by side."""
        number = 0
        while self.stage.is_feeding:
            self.under_way += 1
            try:
                await self._producer.send(self.name, b"%d" % number, queue=queue)
            except ErucaError:
                await self.rest(5, 20)
                continue
            finally:
                self.under_way -= 1
            number += 1
            self._sent[queue.queue_id] = number
            if self._hurries:
                self._hurries -= 1
            else:
                await self.rest(0, 12)

    def press(self) -> None:
        """More than the handler can do at once."""
        self._hurries = 60

    def _list_missing(self) -> list[str]:
        return [
            f"queue {queue_id} ends at {seen[-1][2] if seen else None}, not {count - 1}"
            for queue_id, count in self._sent.items()
            if not (seen := self._seen[queue_id]) or max(number for _, _, number in seen[-500:]) < count - 1
        ]

    def count_done(self) -> int:
        """Messages that came."""
        return sum(len(found) for found in self._seen.values())

    def count_under_way(self) -> int:
        """Messages that are being sent, or are in a queue where the handler is not."""
        seen = sum(max([number + 1 for _, _, number in found[-500:]], default=0) for found in self._seen.values())
        return self.under_way + max(0, self._sent.total() - seen) + len(self._working)

    async def settle(self) -> None:
        """Wait for the ends of all queues."""
        await self.end_tasks()
        await self.wait_for(self._list_missing, "not all came")

    async def check(self) -> None:
        """Check the order."""
        for queue_id, seen in self._seen.items():
            known, last_offset, went_back = -1, -1, 0
            for _, offset, number in seen:
                if number > known + 1:
                    self.blame(f"queue {queue_id}: {number} came after {known}")
                known = max(known, number)
                went_back += offset <= last_offset
                last_offset = offset
            self._repeated += went_back
            if went_back > len(self.stage.kills):
                self.blame(f"queue {queue_id} went back {went_back} times with {len(self.stage.kills)} kills")

    async def close(self) -> None:
        """End the clients."""
        await self._consumer.close()
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        return f"{self._sent.total()} messages in {self._QUEUES} queues, in order; went back {self._repeated} times"


class Filters(Part):
    """Subscriptions by tags and by SQL are restored automatically, and match the same messages as before."""

    name = "filters"

    async def start(self) -> None:
        """Make the topic and begin."""
        self._facts: dict[bytes, tuple[str, int]] = {}
        self._acknowledged: set[bytes] = set()
        self._came: dict[str, Counter[bytes]] = {"tags": Counter(), "sql": Counter()}
        self._producer = Producer(self.stage.nameserver, group=self.name, timeout=SEND_SECONDS)
        await self._producer.start()
        await create_topic(self._producer, self.name, 2)
        self._consumers = [
            self._make_consumer("tags", "a || b"),
            self._make_consumer("sql", Sql("price BETWEEN 3 AND 6 AND TAGS <> 'c'")),
        ]
        for consumer in self._consumers:
            await consumer.start()
        self.spawn(self._feed())

    def _make_consumer(self, kind: str, expression: str | Sql) -> Consumer:
        consumer = make_consumer(self.stage.nameserver, f"{self.name}-{kind}")

        @consumer.handler(self.name, expression)
        async def take(message: Message) -> None:
            self._came[kind][message.body] += 1

        return consumer

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._send()
            await self.rest(2, 20)

    def press(self) -> None:
        """A few at once, and more after those."""
        for _ in range(4):
            self.spawn(self._send_several())

    async def _send_several(self) -> None:
        for _ in range(12):
            await self._send()

    async def _send(self) -> None:
        body = self.name_body()
        self._facts[body] = tag, price = self.rng.choice("abc"), self.rng.randrange(10)
        self.under_way += 1
        try:
            await self._producer.send(self.name, body, tags=tag, properties={"price": str(price)})
            self._acknowledged.add(body)
        except ErucaError:
            return
        finally:
            self.under_way -= 1

    def _matches(self, kind: str, body: bytes) -> bool:
        tag, price = self._facts[body]
        return tag in "ab" and (kind == "tags" or 3 <= price <= 6)

    def _list_missing(self) -> list[tuple[str, bytes]]:
        return [
            (kind, body)
            for kind, came in self._came.items()
            for body in self._acknowledged - came.keys()
            if self._matches(kind, body)
        ]

    def count_done(self) -> int:
        """Messages that came, of the kind that has fewer."""
        return min(came.total() for came in self._came.values())

    def count_under_way(self) -> int:
        """Messages that are sent and not delivered, or being sent."""
        return len(self._list_missing()) + self.under_way

    async def settle(self) -> None:
        """Wait until all have come."""
        await self.end_tasks()
        await self.wait_for(self._list_missing, "matched and not delivered")

    async def check(self) -> None:
        """Nothing came that does not match."""
        for kind, came in self._came.items():
            self.blame_all(f"not for {kind}", [body for body in came if not self._matches(kind, body)])

    async def close(self) -> None:
        """End the clients."""
        for consumer in self._consumers:
            await consumer.close()
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        came = ", ".join(f"{kind} {len(bodies)}" for kind, bodies in self._came.items())
        return f"{len(self._acknowledged)} messages, delivered: {came}"
