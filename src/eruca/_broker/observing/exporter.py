"""The metrics of rocketmq-exporter, with its names and labels, so that existing Grafana boards work.

The exporter asks a cluster from outside, once a minute, and shows one table for all of it. Here each broker shows what
it has, when somebody asks: a board that adds up or groups works on both. Only masters show topics and groups, because
the exporter asks only masters. `rocketmq_group_consume_tps`, `rocketmq_group_consume_total_offset` and
`rocketmq_group_dlqdiff` are declared by the exporter, which never sets them; here they have values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from eruca._broker.administering.stats import MINUTE, Column, QueueSeries, Stats
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.offsets import Offsets
from eruca._broker.groups.progress import find_ends
from eruca._broker.observing.clientfigures import MemberStatus
from eruca._broker.observing.progress import GroupProgress
from eruca._observe.figures import Description, Figures, Kind, Row
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import ReplicationState
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX

_TOPIC: Final = ("cluster", "broker", "topic")
_DEAD: Final = ("cluster", "broker", "group")
_CONSUMED: Final = ("cluster", "broker", "topic", "group")
_DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_BROKER: Final = ("cluster", "brokerIP", "broker")
_CLIENT: Final = ("clientAddr", "clientId", "group", "topic")
# The ordinals of Java's message models.
_CLUSTERING: Final = "1"
# Labels list at most this number of members of a group. The exporter lists all; one label must not become a megabyte.
_MEMBERS_LISTED_MAX: Final = 20


def _gauge(name: str, help_text: str, labels: tuple[str, ...]) -> Description:
    return Description(f"rocketmq_{name}", Kind.GAUGE, help_text, labels)


PRODUCER_TPS: Final = _gauge("producer_tps", "Messages per second into a topic in the last minute.", _TOPIC)
PRODUCER_SIZE: Final = _gauge("producer_message_size", "Bytes per second into a topic in the last minute.", _TOPIC)
PRODUCER_OFFSET: Final = _gauge(
    "producer_offset", "Messages ever stored in a topic: its queues' ends added up.", _TOPIC
)
RETRY_OFFSET: Final = _gauge("topic_retry_offset", "The same for the retry topic of a group.", _TOPIC)
DLQ_OFFSET: Final = _gauge("topic_dlq_offset", "Messages ever stored in the dead letter topic of a group.", _DEAD)
PRODUCER_COUNT: Final = _gauge("producer_count", "Connected producers of a group.", _DEAD)
CONSUMER_TPS: Final = _gauge("consumer_tps", "Messages per second to a group in the last minute.", _CONSUMED)
CONSUMER_SIZE: Final = _gauge("consumer_message_size", "Bytes per second to a group in the last minute.", _CONSUMED)
SEND_BACK: Final = _gauge("send_back_nums", "Messages that a group sent back in the last minute.", _CONSUMED)
CONSUMER_OFFSET: Final = _gauge("consumer_offset", "Committed offsets of a group added up.", _CONSUMED)
CONSUME_TPS: Final = _gauge("group_consume_tps", "The same as rocketmq_consumer_tps.", _CONSUMED)
CONSUME_OFFSET: Final = _gauge("group_consume_total_offset", "The same as rocketmq_consumer_offset.", _CONSUMED)
LATENCY: Final = _gauge(
    "group_get_latency_by_storetime", "Age of the oldest message a group has not consumed, in ms.", _CONSUMED
)
DIFF: Final = _gauge("group_diff", "Messages of a topic that a group has not consumed.", _DIFF)
RETRY_DIFF: Final = _gauge("group_retrydiff", "Messages of its retry topic that a group has not consumed.", _DIFF)
DLQ_DIFF: Final = _gauge("group_dlqdiff", "Dead letters of a group that are stored and were not consumed.", _DIFF)
GROUP_COUNT: Final = _gauge(
    "group_count", "Connected consumers of a group; the labels list the first of them.", ("caddr", "localaddr", "group")
)
BROKER_TPS: Final = _gauge("broker_tps", "Messages per second into this broker in the last minute.", _BROKER)
BROKER_QPS: Final = _gauge("broker_qps", "Messages per second from this broker in the last minute.", _BROKER)
LOG_DIFF: Final = _gauge("broker_commitlog_diff", "How many bytes of the log a slave is behind its master.", _BROKER)
FAILED_COUNT: Final = _gauge(
    "client_consume_fail_msg_count", "Failed messages of a consumer in the last hour.", _CLIENT
)
FAILED_TPS: Final = _gauge("client_consume_fail_msg_tps", "Failed messages of a consumer per second.", _CLIENT)
OK_TPS: Final = _gauge("client_consume_ok_msg_tps", "Messages that a consumer handled per second.", _CLIENT)
CONSUME_RT: Final = _gauge("client_consume_rt", "How long a consumer takes for a message, in ms.", _CLIENT)
PULL_RT: Final = _gauge("client_consumer_pull_rt", "How long a pull of a consumer takes, in ms.", _CLIENT)
PULL_TPS: Final = _gauge("client_consumer_pull_tps", "Messages that a consumer pulled per second.", _CLIENT)


@dataclass(frozen=True, slots=True)
class ExporterTables:
    """Makes the figures of topics, groups and clients."""

    _cluster: str
    _broker: str
    _store: MessageStore
    _offsets: Offsets
    _clients: Clients
    _stats: Stats

    # -- topics ------------------------------------------------------------------------------------------------------

    def list_offsets(self, ends: Iterable[tuple[str, int]]) -> Iterator[Figures]:
        """Yield what was stored in topics; `ends` are topics and the ends of their queues added up."""
        plain: list[Row] = []
        retry: list[Row] = []
        dead: list[Row] = []
        for topic, end in ends:
            if topic.startswith(RETRY_PREFIX):
                retry.append(((self._cluster, self._broker, topic), end))
            elif topic.startswith(DLQ_PREFIX):
                dead.append(((self._cluster, self._broker, topic.removeprefix(DLQ_PREFIX)), end))
            else:
                plain.append(((self._cluster, self._broker, topic), end))
        yield Figures(PRODUCER_OFFSET, plain)
        yield Figures(RETRY_OFFSET, retry)
        yield Figures(DLQ_OFFSET, dead)

    def list_puts(self, puts: Iterable[tuple[str, QueueSeries]], left_out: int) -> Iterator[Figures]:
        """Yield how fast topics grow."""
        kept = [(topic, queues.whole) for topic, queues in puts if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        for about, column in ((PRODUCER_TPS, Column.COUNT), (PRODUCER_SIZE, Column.SIZE)):
            rows: list[Row] = [
                ((self._cluster, self._broker, topic), whole.sum_up(MINUTE, column).tps) for topic, whole in kept
            ]
            yield Figures(about, rows, left_out)

    def list_producers(self) -> Iterator[Figures]:
        """Yield the groups of producers."""
        producers = self._clients.producers
        rows: list[Row] = [((self._cluster, self._broker, name), len(them)) for name, them in list(producers.items())]
        yield Figures(PRODUCER_COUNT, rows)

    # -- groups ------------------------------------------------------------------------------------------------------

    def list_gets(self, gets: Iterable[tuple[str, str, QueueSeries]], left_out: int) -> Iterator[Figures]:
        """Yield how fast groups get messages."""
        kept = [(group, topic, queues.whole) for group, topic, queues in gets if not topic.startswith(DLQ_PREFIX)]
        for about, column in ((CONSUMER_TPS, Column.COUNT), (CONSUMER_SIZE, Column.SIZE), (CONSUME_TPS, Column.COUNT)):
            rows: list[Row] = [
                ((self._cluster, self._broker, topic, group), whole.sum_up(MINUTE, column).tps)
                for group, topic, whole in kept
            ]
            yield Figures(about, rows, left_out)

    def list_send_backs(self) -> Iterator[Figures]:
        """Yield how many messages groups sent back."""
        rows: list[Row] = []
        for key, series in self._stats.list_named("SNDBCK_PUT_NUMS"):
            topic, _, group = key.rpartition("@")
            rows.append(((self._cluster, self._broker, topic, group), series.sum_up(MINUTE, Column.COUNT).sum))
        yield Figures(SEND_BACK, rows)

    def list_progress(self, progress: list[GroupProgress], left_out: int) -> Iterator[Figures]:
        """Yield how far groups are."""
        consumed: list[tuple[tuple[str, ...], GroupProgress]] = [
            ((self._cluster, self._broker, each.topic, each.group), each) for each in progress
        ]
        for about in (CONSUMER_OFFSET, CONSUME_OFFSET):
            yield Figures(about, [(labels, each.committed) for labels, each in consumed], left_out)
        clustered = [(labels, each) for labels, each in consumed if not each.is_broadcast]
        yield Figures(LATENCY, [(labels, each.behind_ms) for labels, each in clustered], left_out)
        diff: list[Row] = []
        retry: list[Row] = []
        for _, each in clustered:
            rows = retry if each.topic.startswith(RETRY_PREFIX) else diff
            rows.append(((each.group, each.topic, self._count_online(each.group), _CLUSTERING), each.behind))
        yield Figures(DIFF, diff, left_out)
        yield Figures(RETRY_DIFF, retry, left_out)

    def list_dead(self, topics: Iterable[str]) -> Iterator[Figures]:
        """Yield the dead letters that are stored."""
        rows: list[Row] = []
        for topic in topics:
            group = topic.removeprefix(DLQ_PREFIX)
            first, end = find_ends(self._store, topic, 0)
            left = end - max(first, self._offsets.get(group, topic, 0))
            rows.append(((group, topic, self._count_online(group), _CLUSTERING), max(0, left)))
        yield Figures(DLQ_DIFF, rows)

    def _count_online(self, group: str) -> str:
        online = self._clients.consumer(group)
        return str(0 if online is None else len(online.members))

    def list_groups(self, known: Iterable[str]) -> Iterator[Figures]:
        """Yield how many members groups have: those that are online, and of others `known` ones, which have none."""
        online = list(self._clients.consumers.values())
        names = {group.name for group in online}
        rows: list[Row] = [(("", "", name), 0) for name in dict.fromkeys(known) if name not in names]
        for group in online:
            listed = list(group.members.values())[:_MEMBERS_LISTED_MAX]
            addresses = ",".join([member.link.peer for member in listed])
            ids = ",".join([member.client_id for member in listed])
            rows.append(((addresses, ids, group.name), len(group.members)))
        yield Figures(GROUP_COUNT, rows)

    @staticmethod
    def list_members(found: list[MemberStatus], left_out: int) -> Iterator[Figures]:
        """Yield what consumers answered about themselves."""
        named = [((each.address, each.client_id, each.group, each.topic), each.status) for each in found]
        yield Figures(FAILED_COUNT, [(labels, status.consume_failed_msgs) for labels, status in named], left_out)
        yield Figures(FAILED_TPS, [(labels, status.consume_failed_tps) for labels, status in named], left_out)
        yield Figures(OK_TPS, [(labels, status.consume_ok_tps) for labels, status in named], left_out)
        yield Figures(CONSUME_RT, [(labels, status.consume_rt) for labels, status in named], left_out)
        yield Figures(PULL_RT, [(labels, status.pull_rt) for labels, status in named], left_out)
        yield Figures(PULL_TPS, [(labels, status.pull_tps) for labels, status in named], left_out)

    # -- brokers -----------------------------------------------------------------------------------------------------

    def list_brokers(self, state: ReplicationState) -> Iterator[Figures]:
        """Yield the rates of this broker, and how far its slaves are behind."""
        labels = (self._cluster, state.address, self._broker)
        yield Figures(BROKER_TPS, [(labels, self._stats.find_broker_rate("BROKER_PUT_NUMS"))])
        yield Figures(BROKER_QPS, [(labels, self._stats.find_broker_rate("BROKER_GET_NUMS"))])
        slaves: list[Row] = [((self._cluster, slave.address, self._broker), slave.lag_bytes) for slave in state.slaves]
        yield Figures(LOG_DIFF, slaves)
