"""The metrics of a broker of RocketMQ 5, with the names and labels of its documentation.

Left out is what has no counterpart here: `rocketmq_rpc_latency` and the times to create topics and groups (nothing is
measured per request), pop consumption, tiered storage, RocksDB, and the distribution of timer messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from eruca._broker.administering.stats import SIZE_BOUNDS, QueueSeries, Series, Stats
from eruca._broker.delaying.timing import TimerFacts
from eruca._broker.groups.clients import Clients
from eruca._broker.observing.progress import GroupProgress
from eruca._broker.transactions import decisions
from eruca._observe.figures import Buckets, Description, Figures, Kind, Row, read_value
from eruca._observe.metrics import Histogram
from eruca._wire import codes
from eruca._wire.bodies import ConsumeType
from eruca._wire.names import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, is_system_topic

_NODE: Final = ("cluster", "node_type", "node_id")
_STORAGE: Final = (*_NODE, "storage_type", "storage_medium")
_PUT: Final = (*_NODE, "topic", "message_type", "is_system")
_GOT: Final = (*_NODE, "topic", "consumer_group", "is_retry", "is_system")
_LAG: Final = (*_NODE, "consumer_group", "topic", "is_retry", "is_system")
_SYSTEM_GROUP: Final = "cid_rmq_sys_"
_TYPES: Final = {HALF_TOPIC: "transaction", SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay"}
_MODES: Final = {ConsumeType.CONSUME_ACTIVELY: "pull", ConsumeType.CONSUME_PASSIVELY: "push"}
_PROTOCOL: Final = "remoting"


def _gauge(name: str, help_text: str, labels: tuple[str, ...] = _NODE) -> Description:
    return Description(f"rocketmq_{name}", Kind.GAUGE, help_text, labels)


def _counter(name: str, help_text: str, labels: tuple[str, ...]) -> Description:
    return Description(f"rocketmq_{name}", Kind.COUNTER, help_text, labels)


WATERMARK: Final = _gauge(
    "processor_watermark",
    "Requests that wait: sends for disk or slaves, pulls that are being woken, long requests for their turn.",
    (*_NODE, "processor"),
)
PERMISSION: Final = _gauge("broker_permission", "Permission of the broker: 4 read, 2 write.")
TOPIC_NUMBER: Final = _gauge("topic_number", "Number of topics.")
GROUP_NUMBER: Final = _gauge("consumer_group_number", "Number of subscription groups.")
MESSAGES_IN: Final = _counter("messages_in_total", "Messages stored in a topic since the start.", _PUT)
THROUGHPUT_IN: Final = _counter("throughput_in_total", "Bytes stored in a topic since the start.", _PUT)
MESSAGE_SIZE: Final = Description(
    "rocketmq_message_size", Kind.HISTOGRAM, "Sizes of stored messages with their headers, in bytes.", _PUT
)
MESSAGES_OUT: Final = _counter("messages_out_total", "Messages returned to a group since the start.", _GOT)
THROUGHPUT_OUT: Final = _counter("throughput_out_total", "Bytes returned to a group since the start.", _GOT)
PRODUCERS: Final = _gauge(
    "producer_connections",
    "Connected producers by language and version.",
    (*_NODE, "language", "version", "protocol_type"),
)
CONSUMERS: Final = _gauge(
    "consumer_connections",
    "Connected consumers of a group.",
    (*_NODE, "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
)
LAG_MESSAGES: Final = _gauge("consumer_lag_messages", "Messages that a group has not consumed.", _LAG)
LAG_LATENCY: Final = _gauge("consumer_lag_latency", "Age of the oldest of them, in milliseconds.", _LAG)
INFLIGHT: Final = _gauge("consumer_inflight_messages", "Messages that a group pulled and has not committed.", _LAG)
READY: Final = _gauge("consumer_ready_messages", "Messages that a group has not pulled.", _LAG)
QUEUEING: Final = _gauge("consumer_queueing_latency", "Age of the oldest of them, in milliseconds.", _LAG)
SENT_TO_DLQ: Final = _counter(
    "send_to_dlq_messages_total",
    "Messages ever moved to the dead letters of a group.",
    (*_NODE, "consumer_group", "topic", "is_system"),
)
COMMITTED: Final = _counter("commit_messages_total", "Committed transactions since the start.", (*_NODE, "topic"))
ROLLED_BACK: Final = _counter("rollback_messages_total", "Rolled back transactions since the start.", (*_NODE, "topic"))
FINISH_LATENCY: Final = Description(
    "rocketmq_finish_message_latency", Kind.HISTOGRAM, "From sending a half to its decision, in seconds.", _NODE
)
HALVES: Final = _gauge("half_messages", "Half messages from the first undecided one on; some of them may be decided.")
STORAGE_SIZE: Final = _gauge("storage_size", "Used bytes of the disk of the store.", _STORAGE)
FLUSH_BEHIND: Final = _gauge("storage_flush_behind_bytes", "Bytes of the log that are not on disk yet.", _STORAGE)
DISPATCH_BEHIND: Final = _gauge(
    "storage_dispatch_behind_bytes", "Bytes of the log that have no queue entries yet.", _STORAGE
)
RESERVE_TIME: Final = _gauge("storage_message_reserve_time", "Age of the oldest message, in milliseconds.", _STORAGE)
TIMING: Final = _gauge("timing_messages", "Messages with a delivery time that are not delivered yet.", _STORAGE)
TIMER_ENQUEUE_LAG: Final = _gauge("timer_enqueue_lag", "Messages that the timer has not read yet.", _STORAGE)
TIMER_DEQUEUE_LATENCY: Final = _gauge(
    "timer_dequeue_latency", "How late the next delivery of the timer is, in milliseconds.", _STORAGE
)
_VERSIONS: Final = {
    number: name.removeprefix("VERSION_").lower()
    for name, number in vars(codes).items()
    if name.startswith("VERSION_") and name != "VERSION_ANNOUNCED"
}


def _say(flag: bool) -> str:
    return "true" if flag else "false"


def _is_system(topic: str, group: str = "") -> str:
    return _say(is_system_topic(topic) or group.lower().startswith(_SYSTEM_GROUP))


def _is_retry(topic: str) -> str:
    return _say(topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))


def _name_version(version: int) -> str:
    """Return the name of a client's version; its number if it is not one we know."""
    known = _VERSIONS.get(version)
    return f"v{known}" if known else str(version)


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """What is known about the store and its disk."""

    used_bytes: int
    flush_behind: int
    dispatch_behind: int
    # The age of the oldest message; None without one.
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class Rocketmq5Tables:
    """Makes the figures."""

    _cluster: str
    _broker: str
    _clients: Clients
    _stats: Stats

    @property
    def _node(self) -> tuple[str, str, str]:
        return self._cluster, "broker", self._broker

    @property
    def _disk(self) -> tuple[str, ...]:
        return (*self._node, "local", "disk")

    # -- messages ----------------------------------------------------------------------------------------------------

    def list_puts(self, puts: Iterable[tuple[str, QueueSeries]], left_out: int) -> Iterator[Figures]:
        """Yield what was stored in topics; the series are added up."""
        kept = [
            ((*self._node, topic, _TYPES.get(topic, "normal"), _is_system(topic)), queues.whole)
            for topic, queues in puts
        ]
        yield Figures(MESSAGES_IN, [(labels, series.count) for labels, series in kept], left_out)
        yield Figures(THROUGHPUT_IN, [(labels, series.size) for labels, series in kept], left_out)
        yield Figures(MESSAGE_SIZE, [(labels, _read_sizes(series)) for labels, series in kept], left_out)

    def list_gets(self, gets: Iterable[tuple[str, str, QueueSeries]], left_out: int) -> Iterator[Figures]:
        """Yield what groups got; the series are added up."""
        kept = [
            ((*self._node, topic, group, _is_retry(topic), _is_system(topic, group)), queues.whole)
            for group, topic, queues in gets
        ]
        yield Figures(MESSAGES_OUT, [(labels, series.count) for labels, series in kept], left_out)
        yield Figures(THROUGHPUT_OUT, [(labels, series.size) for labels, series in kept], left_out)

    # -- groups ------------------------------------------------------------------------------------------------------

    def list_progress(self, progress: Iterable[GroupProgress], left_out: int) -> Iterator[Figures]:
        """Yield how far groups are."""
        kept = [
            ((*self._node, each.group, each.topic, _is_retry(each.topic), _is_system(each.topic, each.group)), each)
            for each in progress
            if not each.is_broadcast
        ]
        yield Figures(LAG_MESSAGES, [(labels, each.lag) for labels, each in kept], left_out)
        yield Figures(LAG_LATENCY, [(labels, each.lag_ms) for labels, each in kept], left_out)
        yield Figures(INFLIGHT, [(labels, each.in_flight) for labels, each in kept], left_out)
        yield Figures(READY, [(labels, each.ready) for labels, each in kept], left_out)
        yield Figures(QUEUEING, [(labels, each.queueing_ms) for labels, each in kept], left_out)

    def list_dead(self, ends: Iterable[tuple[str, int]]) -> Iterator[Figures]:
        """Yield the dead letters; `ends` are topics of dead letters and how many were ever stored."""
        rows: list[Row] = [((*self._node, topic.removeprefix(DLQ_PREFIX), topic, "false"), end) for topic, end in ends]
        yield Figures(SENT_TO_DLQ, rows)

    def list_connections(self) -> Iterator[Figures]:
        """Yield the connected clients."""
        producers: Counter[tuple[str, ...]] = Counter()
        for members in list(self._clients.producers.values()):
            for each in members.values():
                producers[each.language.lower(), _name_version(each.version), _PROTOCOL] += 1
        yield Figures(PRODUCERS, [((*self._node, *labels), count) for labels, count in producers.items()])
        consumers: Counter[tuple[str, ...]] = Counter()
        for group in list(self._clients.consumers.values()):
            mode = _MODES.get(group.consume_type, "")
            for each in group.members.values():
                labels = each.language.lower(), _name_version(each.version), mode, _PROTOCOL
                consumers[(group.name, *labels, _is_system("", group.name))] += 1
        yield Figures(CONSUMERS, [((*self._node, *labels), count) for labels, count in consumers.items()])

    # -- transactions ------------------------------------------------------------------------------------------------

    def list_transactions(self, latency: Histogram, halves: int) -> Iterator[Figures]:
        """Yield the decisions about half messages."""
        for about, name in ((COMMITTED, decisions.COMMITTED), (ROLLED_BACK, decisions.ROLLED_BACK)):
            rows: list[Row] = [((*self._node, topic), series.count) for topic, series in self._stats.list_named(name)]
            yield Figures(about, rows)
        yield Figures(FINISH_LATENCY, [(self._node, read_value(latency))])
        yield Figures(HALVES, [(self._node, halves)])

    # -- the broker --------------------------------------------------------------------------------------------------

    def list_broker(self, waiting: Mapping[str, int], permission: int, topics: int, groups: int) -> Iterator[Figures]:
        """Yield what concerns the broker as a whole."""
        yield Figures(WATERMARK, [((*self._node, processor), count) for processor, count in waiting.items()])
        yield Figures(PERMISSION, [(self._node, permission)])
        yield Figures(TOPIC_NUMBER, [(self._node, topics)])
        yield Figures(GROUP_NUMBER, [(self._node, groups)])

    def list_storage(self, facts: StorageFacts, timer: TimerFacts) -> Iterator[Figures]:
        """Yield what concerns the store and the timer."""
        yield Figures(STORAGE_SIZE, [(self._disk, facts.used_bytes)])
        yield Figures(FLUSH_BEHIND, [(self._disk, facts.flush_behind)])
        yield Figures(DISPATCH_BEHIND, [(self._disk, facts.dispatch_behind)])
        yield Figures(RESERVE_TIME, [] if facts.oldest_ms is None else [(self._disk, facts.oldest_ms)])
        yield Figures(TIMING, [(self._disk, timer.pending)])
        yield Figures(TIMER_ENQUEUE_LAG, [(self._disk, timer.unread)])
        yield Figures(TIMER_DEQUEUE_LATENCY, [(self._disk, timer.late_ms)])


def _read_sizes(series: Series) -> Buckets:
    names = [*[str(float(upper)) for upper in SIZE_BOUNDS[:-1]], "+Inf"]
    return Buckets(list(zip(names, series.list_sizes(), strict=True)), series.size)
