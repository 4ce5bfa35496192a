"""Progress of groups: their offsets compared with the ends of queues, in messages and in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import LiveOptions
from eruca._broker.refusals import refuse
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._ground.clock import Clock
from eruca._ground.digits import read_digits
from eruca._net.handlers import HandlerTable, Reply, Request, encode_apart
from eruca._net.turns import Slices
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import (
    BrokerStatsData,
    ConsumeOffset,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DelayOffsets,
    GroupList,
    MessageQueue,
    QueueTimeSpan,
    StatsItem,
    TopicConfig,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import (
    BrokerConsumeStatsHeader,
    CloneGroupOffsetHeader,
    ConsumeStatsHeader,
    CorrectionOffsetHeader,
    StatsDataHeader,
    TopicGroupHeader,
)
from eruca._wire.names import check_group

_NEVER = 2**63 - 1
# Queues in one response about all groups: each takes about 150 bytes of a frame.
_QUEUES_ANSWERED_MAX = 100_000
_FALL_SIZE = "GROUP_GET_FALL_SIZE"
_FALL_TIME = "GROUP_GET_FALL_TIME"


def read_time_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """Return the store time of the message at an offset; -1 if there is none."""
    queue = store.queues.get(topic, queue_id)
    entry = None if queue is None or offset < queue.min_offset else queue.entry(offset)
    return -1 if entry is None else store.reader.read_time(entry.position, entry.size)


def find_ends(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    """Return the first and the next offset of a queue; 0 and 0 if it was never written to."""
    queue = store.queues.get(topic, queue_id)
    return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)


@dataclass(frozen=True, slots=True, eq=False)
class ProgressHandlers:
    """Handles requests about the offsets of groups, and copies offsets between groups."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _offsets: Offsets
    _clients: Clients
    _stats: Stats
    _list_delay_offsets: Callable[[], DelayOffsets]

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add_long(RequestCode.GET_CONSUME_STATS, self.describe_group)
        table.add_long(RequestCode.GET_BROKER_CONSUME_STATS, self.describe_all)
        table.add_long(RequestCode.QUERY_CONSUME_TIME_SPAN, self.describe_times)
        table.add_long(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.list_groups)
        table.add_long(RequestCode.GET_ALL_CONSUMER_OFFSET, self.list_offsets)
        table.add(RequestCode.GET_ALL_DELAY_OFFSET, self.list_delay_offsets)
        table.add_long(RequestCode.QUERY_CORRECTION_OFFSET, self.compare_offsets)
        table.add_long(RequestCode.CLONE_GROUP_OFFSET, self.clone_offsets)
        table.add(RequestCode.VIEW_BROKER_STATS_DATA, self.view_counter)

    # -- progress -----------------------------------------------------------------------------------------------------

    async def describe_group(self, request: Request) -> Reply:
        """Return the progress of a group in one topic or in all."""
        header: ConsumeStatsHeader = request.header
        group = header.consumer_group
        asked = (header.topic or "").strip()
        slices = Slices()
        names = [asked] if asked else [topic for topic, its in await self._list_pairs(slices) if its == group]
        whole = ConsumeStats()
        for topic in self._consumed_topics(group, names):
            stats = await self._describe(group, topic, topic.read_queue_nums, slices)
            whole.offset_table.update(stats.offset_table)
            whole.consume_tps += stats.consume_tps
        return Reply(body=await encode_apart(request, whole))

    async def describe_all(self, request: Request) -> Reply:
        """Return the progress of every group in every topic, or in ordered topics only."""
        header: BrokerConsumeStatsHeader = request.header
        slices = Slices()
        by_group: dict[str, list[str]] = {name: [] for name in self._groups.names()}
        for topic_name, group in await self._list_pairs(slices):
            if group in by_group:
                by_group[group].append(topic_name)
        listed: list[dict[str, list[ConsumeStats]]] = []
        behind = size = 0
        for group, names in by_group.items():
            topics = [topic for topic in self._consumed_topics(group, names) if topic.order or not header.is_order]
            found = [await self._describe(group, topic, topic.write_queue_nums, slices) for topic in topics]
            for stats in found:
                behind += sum(item.broker_offset - item.consumer_offset for item in stats.offset_table.values())
                size += len(stats.offset_table)
            if size > _QUEUES_ANSWERED_MAX:
                refuse(
                    ResponseCode.SYSTEM_ERROR,
                    f"more than {_QUEUES_ANSWERED_MAX} queues, which do not fit in a frame: query one group at a time",
                )
            listed.append({group: found})
            await slices.rest()
        body = ConsumeStatsList(broker_addr=self._standing.address, consume_stats_list=listed, total_diff=behind)
        return Reply(body=await encode_apart(request, body))

    async def _list_pairs(self, slices: Slices) -> list[tuple[str, str]]:
        """List every topic and group with an offset."""
        pairs = []
        for pair in self._offsets.pairs():
            pairs.append(pair)
            if slices.is_over:
                await slices.rest()
        return pairs

    def _consumed_topics(self, group: str, names: Iterable[str]) -> list[TopicConfig]:
        """Filter the topics that exist and that the group subscribes to, if it is online."""
        online = self._clients.consumer(group)
        left = [] if online is None else online.subscriptions
        topics = [self._topics.get(name) for name in names if not left or name in left]
        return [topic for topic in topics if topic is not None]

    async def _describe(self, group: str, topic: TopicConfig, queue_nums: int, slices: Slices) -> ConsumeStats:
        name = topic.topic_name
        stats = ConsumeStats(consume_tps=self._stats.get_tps(group, name))
        committed = self._offsets.queues(group, name)
        for queue_id in range(queue_nums):
            offset = max(0, committed.get(queue_id, 0))
            last_ms = read_time_at(self._store, name, queue_id, offset - 1) if offset else 0
            stats.offset_table[self._queue(name, queue_id)] = ConsumeOffset(
                broker_offset=find_ends(self._store, name, queue_id)[1],
                consumer_offset=offset,
                last_timestamp=max(0, last_ms),
            )
            if slices.is_over:
                await slices.rest()
        return stats

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(self._options.now.name, queue_id, topic)

    async def describe_times(self, request: Request) -> Reply:
        """Return the age of the messages of a topic, and the delay of a group."""
        header: TopicGroupHeader = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        slices = Slices()
        spans = []
        for queue_id in range(topic.write_queue_nums):
            spans.append(self._describe_time(header, queue_id))
            await slices.rest()
        return Reply(body=await encode_apart(request, ConsumeTimeSpans(consume_time_span_set=spans)))

    def _describe_time(self, header: TopicGroupHeader, queue_id: int) -> QueueTimeSpan:
        store, topic = self._store, header.topic
        first, end = find_ends(store, topic, queue_id)
        oldest = store.reader.earliest_time(topic, queue_id)
        newest = read_time_at(store, topic, queue_id, end - 1)
        offset = self._offsets.get(header.group, topic, queue_id)
        consumed = read_time_at(store, topic, queue_id, offset - 1) if offset > 0 else oldest
        delay = 0
        if offset < end:
            waiting = read_time_at(store, topic, queue_id, max(offset, first))
            delay = self._clock.now_ms() - waiting if waiting >= 0 else 0
        return QueueTimeSpan(
            consume_timestamp=consumed,
            consume_timestamp_text=_write_time(consumed),
            delay_time=delay,
            max_timestamp=newest,
            max_timestamp_text=_write_time(newest),
            message_queue=self._queue(topic, queue_id),
            min_timestamp=oldest,
            min_timestamp_text=_write_time(oldest),
        )

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def list_groups(self, request: Request) -> Reply:
        """List the groups that consume a topic now or have consumed it."""
        topic: str = request.header.topic
        pairs = await self._list_pairs(Slices())
        offline = [group for its_topic, group in pairs if its_topic == topic]
        names = dict.fromkeys([*self._clients.groups_of_topic(topic), *offline])
        return Reply(body=GroupList(group_list=list(names)))

    async def list_offsets(self, request: Request) -> Reply:
        """Return all committed offsets."""
        return Reply(body=await encode_apart(request, self._offsets.snapshot()))

    def list_delay_offsets(self, request: Request) -> Reply:
        """Return the progress of every delay level."""
        return Reply(body=self._list_delay_offsets())

    async def compare_offsets(self, request: Request) -> Reply:
        """Return the smallest offset of any group in each queue of a topic, without the excluded groups.

        For a queue in which the compared group is behind all others, the value is the largest possible number. (A Java
        broker deletes the offsets of the excluded groups; here they are only ignored.)
        """
        header: CorrectionOffsetHeader = request.header
        offsets = self._offsets
        left_out = set((header.filter_groups or "").split(","))
        smallest: dict[int, int] = {}
        slices = Slices()
        for topic, group in await self._list_pairs(slices):
            if topic != header.topic or group in left_out:
                continue
            for queue_id, offset in offsets.queues(group, header.topic).items():
                if offset >= find_ends(self._store, header.topic, queue_id)[0]:
                    smallest[queue_id] = min(offset, smallest.get(queue_id, _NEVER))
                if slices.is_over:
                    await slices.rest()
        for queue_id, offset in offsets.queues(header.compare_group, header.topic).items():
            if smallest.get(queue_id, -1) > offset:
                smallest[queue_id] = _NEVER
        return Reply(body=CorrectionOffsets(correction_offsets=smallest))

    async def clone_offsets(self, request: Request) -> Reply:
        """Copy the offsets of one group to another, in one topic or in all."""
        header: CloneGroupOffsetHeader = request.header
        topic = (header.topic or "").strip()
        check_group(header.dest_group)
        slices = Slices()
        source = header.src_group
        for name in [topic] if topic else [name for name, group in await self._list_pairs(slices) if group == source]:
            await slices.rest()
            if self._topics.get(name) is None:
                continue
            online = self._clients.consumer(header.src_group)
            if not header.offline and online is not None and online.subscriptions and name not in online.subscriptions:
                continue
            self._offsets.clone(header.src_group, header.dest_group, name)
        return Reply()

    # -- counters -----------------------------------------------------------------------------------------------------

    def view_counter(self, request: Request) -> Reply:
        """Return one counter over a day, an hour and a minute."""
        header: StatsDataHeader = request.header
        name, key = header.stats_name, header.stats_key
        found = self._fall_behind(name, key) if name in (_FALL_SIZE, _FALL_TIME) else self._stats.find(name, key)
        if found is None:
            refuse(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return Reply(body=found)

    def _fall_behind(self, name: str, key: str) -> BrokerStatsData | None:
        """Return how far a group's last message is behind the end of the log now, in bytes or milliseconds."""
        number, _, rest = key.partition("@")
        topic, _, group = rest.partition("@")
        queue_id = read_digits(number)
        offset = -1 if queue_id is None else self._offsets.get(group, topic, queue_id)
        if queue_id is None or offset <= 0:
            return None
        queue = self._store.queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(offset - 1)
        if entry is None:
            return None
        behind = self._store.log.readable_end - entry.position - entry.size
        if name == _FALL_TIME:
            behind = self._clock.now_ms() - self._store.reader.read_time(entry.position, entry.size)
        item = StatsItem(sum=max(0, behind))
        return BrokerStatsData(stats_day=item, stats_hour=item, stats_minute=item)


def _write_time(time_ms: int) -> str:
    """Format a time as Java's tools print it, in local time: 2026-11-15#07:28:55:174."""
    moment = datetime.fromtimestamp(time_ms // 1000)
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{time_ms % 1000:03d}"
