"""How far each group is in each topic: messages and time, computed from the tables of a broker for its metrics."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.offsets import Offsets
from eruca._broker.groups.progress import read_time_at
from eruca._broker.topics import Topics
from eruca._ground.clock import Clock
from eruca._net.turns import Slices
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import MessageModel, TopicConfig
from eruca._wire.names import DLQ_PREFIX

# The queues one collection looks at: a microsecond or two each, unless the time of a message has to be read.
QUEUES_MAX: Final = 200_000


class GroupProgress(NamedTuple):
    """One group in one topic, over all queues of this broker. Times are ages in milliseconds."""

    group: str
    topic: str
    is_broadcast: bool
    # The sum of the committed offsets.
    committed: int
    # Messages after them, as Java's tools count: in a queue without an offset all that were ever stored.
    behind: int
    # The age of the oldest of these.
    behind_ms: int
    # The same as RocketMQ 5 counts: in a queue without an offset none.
    lag: int
    lag_ms: int
    # Messages that were pulled and not committed, or popped and not acknowledged; those that were not pulled; the age
    # of the oldest of the latter.
    in_flight: int
    ready: int
    queueing_ms: int


class ProgressReader:
    """Computes the progress of groups. The store time of a message is read once, while the offset stays the same."""

    def __init__(
        self,
        clock: Clock,
        store: MessageStore,
        topics: Topics,
        offsets: Offsets,
        clients: Clients,
        stats: Stats,
        count_popped: Callable[[str, str], int],
    ) -> None:
        """`count_popped` returns how many messages of a topic a group has popped and not acknowledged."""
        self._clock = clock
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._count_popped = count_popped
        # By topic, queue and offset: of the last collection, and of the one in progress.
        self._known: dict[tuple[str, int, int], int] = {}
        self._found: dict[tuple[str, int, int], int] = {}

    async def read(self, rows_max: int) -> tuple[list[GroupProgress], int]:
        """Return the progress of at most this many pairs of group and topic, and how many were left out."""
        slices = Slices()
        pairs, left_out = self._choose_pairs(rows_max)
        self._found = {}
        rows: list[GroupProgress] = []
        queues_left = QUEUES_MAX
        for index, (topic_name, group) in enumerate(pairs):
            topic = self._topics.get(topic_name)
            if topic is None:
                continue
            queues_left -= topic.read_queue_nums
            if queues_left < 0:
                left_out += len(pairs) - index
                break
            rows.append(await self._describe(group, topic, slices))
        self._known, self._found = self._found, {}
        return rows, left_out

    def _choose_pairs(self, most: int) -> tuple[list[tuple[str, str]], int]:
        """Return pairs of topic and group: first of groups that are online, then of those with offsets."""
        offsets = self._offsets
        online = {
            (topic, group.name): None
            for group in islice(list(self._clients.consumers.values()), most)
            for topic in group.subscriptions
            if not topic.startswith(DLQ_PREFIX)
        }
        without_offsets = sum([not offsets.has(group, topic) for topic, group in online])
        left = iter([pair for pair in islice(offsets.pairs(), most) if pair not in online])
        pairs = list(islice([*online, *left], most))
        return pairs, max(0, offsets.count_pairs() + without_offsets - len(pairs))

    async def _describe(self, group: str, topic: TopicConfig, slices: Slices) -> GroupProgress:
        name = topic.topic_name
        online = self._clients.consumer(group)
        committed = self._offsets.queues(group, name)
        # What members pulled that have left is pulled again.
        pulled = None if online is None else self._stats.find_gets(group, name)
        now = self._clock.now_ms()
        total = behind = lag = in_flight = ready = behind_ms = lag_ms = queueing_ms = 0
        for queue_id in range(topic.read_queue_nums):
            queue = self._store.queues.get(name, queue_id)
            end = 0 if queue is None else queue.max_offset
            offset = committed.get(queue_id, -1)
            start = max(0, offset)
            total += start
            behind += max(0, end - start)
            if start < end:
                age = self._find_age(name, queue_id, start, now)
                behind_ms = max(behind_ms, age)
                if offset >= 0:
                    lag += end - offset
                    lag_ms = max(lag_ms, age)
            series = None if pulled is None else pulled.get(queue_id)
            following = -1 if series is None else series.next_offset
            if following < 0:
                following = offset if offset >= 0 else end
            in_flight += max(0, following - offset) if offset >= 0 else 0
            if following < end:
                ready += end - following
                queueing_ms = max(queueing_ms, self._find_age(name, queue_id, following, now))
            if slices.is_over:
                await slices.rest()
        return GroupProgress(
            group=group,
            topic=name,
            is_broadcast=online is not None and online.message_model is MessageModel.BROADCASTING,
            committed=total,
            behind=behind,
            behind_ms=behind_ms,
            lag=lag,
            lag_ms=lag_ms,
            in_flight=in_flight + self._count_popped(group, name),
            ready=ready,
            queueing_ms=queueing_ms,
        )

    def _find_age(self, topic: str, queue_id: int, offset: int, now_ms: int) -> int:
        """Return how long ago the message at an offset was stored; of a deleted one, the oldest that is left."""
        queue = self._store.queues.get(topic, queue_id)
        if queue is None:
            return 0
        offset = max(offset, queue.min_offset)
        key = topic, queue_id, offset
        stored = self._found.get(key) or self._known.get(key) or read_time_at(self._store, topic, queue_id, offset)
        if stored <= 0:
            return 0
        self._found[key] = stored
        return max(0, now_ms - stored)
