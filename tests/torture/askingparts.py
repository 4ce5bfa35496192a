"""Parts of `make torture ONLY=delivery`: requests and replies, committed offsets, and the tables."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from eruca import Message, MessageQueue, Producer
from eruca._wire.bodies import GroupConfig, GroupConfigTable, TopicConfigTable
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CreateTopicHeader, DeleteGroupHeader, TopicHeader
from eruca.errors import ErucaError
from tests.clients.stage import ask_broker, create_topic, make_consumer
from tests.torture.deliverystage import OFFSETS_INTERVAL_MS, SEND_SECONDS, Part, insist


class Requests(Part):
    """A request is answered or fails with an error of ours, in its time; none hangs, none gets another's reply."""

    name = "requests"
    _SECONDS = 3.0
    _SECONDS_MORE = 5.0

    async def start(self) -> None:
        """Make the topic and begin."""
        self._answered = 0
        self._errors: Counter[str] = Counter()
        self._producer = Producer(self.stage.nameserver, group=self.name, timeout=SEND_SECONDS)
        await self._producer.start()
        await create_topic(self._producer, self.name, 2)
        self._consumer = make_consumer(self.stage.nameserver, self.name)

        @self._consumer.handler(self.name)
        async def answer(message: Message) -> None:
            await self.rest(0, 30)
            try:
                await self._producer.reply(message, b"re " + message.body)
            except ErucaError:
                return  # whoever asked gives up in time

        await self._consumer.start()
        self.spawn(self._feed())

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._ask()
            await self.rest(5, 40)

    def press(self) -> None:
        """A few at once."""
        for _ in range(12):
            self.spawn(self._ask())

    async def _ask(self) -> None:
        body = self.name_body()
        self.under_way += 1
        try:
            async with asyncio.timeout(self._SECONDS + self._SECONDS_MORE):
                reply = await self._producer.request(self.name, body, timeout=self._SECONDS)
            self._answered += 1
            if reply.body != b"re " + body:
                self.blame(f"the reply to {body!r} is {reply.body!r}")
        except TimeoutError:
            self.blame(f"the request {body!r} hangs")
        except ErucaError as error:
            self._errors[type(error).__name__] += 1
        finally:
            self.under_way -= 1

    def count_done(self) -> int:
        """Replies."""
        return self._answered

    def count_under_way(self) -> int:
        """Requests without a reply."""
        return self.under_way

    async def settle(self) -> None:
        """Requests work again."""
        await self.end_tasks()
        reply = await insist(lambda: self._producer.request(self.name, b"last", timeout=self._SECONDS))
        if reply.body != b"re last":
            self.blame(f"the last reply is {reply.body!r}")

    async def close(self) -> None:
        """End the clients."""
        await self._consumer.close()
        await self._producer.close()

    def summarise(self) -> str:
        """What was done, in numbers."""
        errors = ", ".join(f"{name} {count}" for name, count in sorted(self._errors.items())) or "none"
        return f"{self._answered} requests answered, failed: {errors}"


class Offsets(Part):
    """Committed offsets: after a kill a group goes back by what it committed in the last save interval, and no more.

    As with Java, an acknowledged commit is in memory, and on the disk with the next save. What was acknowledged longer
    than an interval (and the time of a save) before the kill is never lost, and nothing comes back that was not sent.
    """

    name = "offsets"
    # What a save may take when the machine has other things to do.
    _SAVE_SECONDS_MAX = 0.8
    _QUEUES = 2

    async def start(self) -> None:
        """Make the topic and begin."""
        self._acknowledged: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        self._attempted: Counter[int] = Counter()
        self._lost = 0
        await create_topic(self.stage.looker, self.name, self._QUEUES)
        # Offsets beyond the end of a queue are none: there must be messages.
        self._queues = await self.stage.looker.list_queues(self.name)
        self._may_write = asyncio.Event()
        self._may_write.set()
        for queue in self._queues:
            self.spawn(self._feed(queue))

    async def _feed(self, queue: MessageQueue) -> None:
        loop = asyncio.get_running_loop()
        calls, group = self.stage.looker._session.calls, self.name
        while self.stage.is_feeding:
            await self._may_write.wait()
            offset = self._attempted[queue.queue_id] = self._attempted[queue.queue_id] + 1
            try:
                await calls.write_offset(self.stage.broker, group, queue, offset, wait=True)
                self._acknowledged[queue.queue_id].append((loop.time(), offset))
            except ErucaError:
                # Nobody may write over what the kill left before it was looked at.
                self._may_write.clear()
            await self.rest(1, 10)

    async def prepare(self) -> None:
        """Let it write for a while."""
        self._may_write.set()

    def count_done(self) -> int:
        """Commits."""
        return sum(len(found) for found in self._acknowledged.values())

    def count_under_way(self) -> int:
        """Commits that may not be on the disk."""
        since = asyncio.get_running_loop().time() - OFFSETS_INTERVAL_MS / 1000
        return sum(bool(found) and found[-1][0] > since for found in self._acknowledged.values())

    async def on_restart(self) -> None:
        """Ask what the broker still knows."""
        self._may_write.clear()
        killed = self.stage.kills[-1]
        safe_until = killed - OFFSETS_INTERVAL_MS / 1000 - self._SAVE_SECONDS_MAX
        calls = self.stage.looker._session.calls
        for queue in self._queues:
            found = await insist(lambda queue=queue: calls.read_offset(self.stage.broker, self.name, queue))
            acknowledged = self._acknowledged[queue.queue_id]
            safe = max([offset for at, offset in acknowledged if at <= safe_until], default=0)
            last = acknowledged[-1][1] if acknowledged else 0
            self._lost = max(self._lost, last - (found or 0))
            if not safe <= (found or 0) <= self._attempted[queue.queue_id]:
                self.blame(
                    f"queue {queue.queue_id} is at {found}: {safe} was safe, {self._attempted[queue.queue_id]} the last"
                )
        self._may_write.set()

    async def settle(self) -> None:
        """Wait for the writers."""
        self._may_write.set()
        await self.end_tasks()

    def summarise(self) -> str:
        """What was done, in numbers."""
        count = sum(len(found) for found in self._acknowledged.values())
        return f"{count} commits acknowledged, went back by {self._lost} at most"


class Tables(Part):
    """Settings of topics and groups: what an operator was told is done stays done."""

    name = "tables"

    async def start(self) -> None:
        """Begin."""
        # What each topic and group has, or may have after a change whose answer is lost; 0 is "not there".
        self._topics: defaultdict[str, set[int]] = defaultdict(lambda: {0})
        self._groups: defaultdict[str, set[int]] = defaultdict(lambda: {0})
        self._busy: set[str] = set()
        self._changes = self._failed = 0
        self.spawn(self._feed())

    async def _feed(self) -> None:
        while self.stage.is_feeding:
            await self._change()
            await self.rest(10, 60)

    def press(self) -> None:
        """A few at once."""
        for _ in range(4):
            self.spawn(self._change_several())

    async def _change_several(self) -> None:
        for _ in range(6):
            await self._change()

    async def _change(self) -> None:
        """Make, change or delete a topic or a group that nobody else is changing."""
        name = f"table-{self.rng.randrange(24)}"
        if name in self._busy:
            return
        table = self._topics if self.rng.random() < 0.5 else self._groups
        number = self.rng.choice((0, *range(1, 16)))
        self._busy.add(name)
        table[name].add(number)
        try:
            await (self._put_topic(name, number) if table is self._topics else self._put_group(name, number))
            table[name] = {number}
            self._changes += 1
        except ErucaError:
            self._failed += 1
        finally:
            self._busy.discard(name)

    async def _put_topic(self, name: str, queues: int) -> None:
        session = self.stage.looker._session
        if queues:
            header = CreateTopicHeader(topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
            await ask_broker(session, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        else:
            await ask_broker(session, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=name))

    async def _put_group(self, name: str, times: int) -> None:
        session = self.stage.looker._session
        if times:
            config = GroupConfig(group_name=name, retry_max_times=times)
            await ask_broker(session, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
        else:
            header = DeleteGroupHeader(group_name=name, remove_offset=True)
            await ask_broker(session, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    def count_done(self) -> int:
        """Changes."""
        return self._changes

    def count_under_way(self) -> int:
        """Changes without an answer."""
        return len(self._busy)

    async def on_restart(self) -> None:
        """Compare."""
        # Changes that are tried now are known as possible before they are sent.
        await self._compare()

    async def _compare(self) -> None:
        session = self.stage.looker._session
        wanted_topics = {name: set(numbers) for name, numbers in self._topics.items() if name not in self._busy}
        wanted_groups = {name: set(numbers) for name, numbers in self._groups.items() if name not in self._busy}
        topics = await insist(lambda: ask_broker(session, RequestCode.GET_ALL_TOPIC_CONFIG))
        groups = await insist(lambda: ask_broker(session, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        assert isinstance(topics, TopicConfigTable)
        assert isinstance(groups, GroupConfigTable)
        for name, numbers in wanted_topics.items():
            config = topics.topic_config_table.get(name)
            found = config.write_queue_nums if config else 0
            if found not in numbers | self._topics[name]:
                self.blame(f"topic {name} has {found} queues, not {numbers}")
        for name, numbers in wanted_groups.items():
            group = groups.subscription_group_table.get(name)
            found = group.retry_max_times if group else 0
            if found not in numbers | self._groups[name]:
                self.blame(f"group {name} has {found} retries, not {numbers}")

    async def settle(self) -> None:
        """Wait for the last answers."""
        await self.end_tasks()
        await self._compare()

    def summarise(self) -> str:
        """What was done, in numbers."""
        return f"{self._changes} changes of topics and groups acknowledged, {self._failed} without an answer"
