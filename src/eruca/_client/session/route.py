"""The route of one topic: its queues and brokers, read from the answer of a name server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eruca._core.allocation import sort_queues
from eruca._ground.limits import ROUTE_BROKERS_MAX, ROUTE_QUEUES_MAX, TOPIC_QUEUES_MAX
from eruca._wire.bodies import BrokerData, MessageQueue, TopicRouteData
from eruca._wire.names import MASTER_ID, READ, WRITE
from eruca.errors import WireError


@dataclass(frozen=True, slots=True)
class Route:
    """The queues and brokers of one topic."""

    topic: str
    # Sorted by topic, broker and number, the same in every client; for an ordered topic, in the order it defines.
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    # Addresses by broker name and broker id; 0 is the master.
    brokers: dict[str, dict[int, str]]
    # True if the topic does not exist yet; these are the queues of its template.
    is_template: bool = False
    # The clusters its brokers belong to.
    clusters: tuple[str, ...] = ()
    # Filter servers by the address of the broker they serve.
    filter_servers: dict[str, tuple[str, ...]] = field(default_factory=dict)


def make_route(topic: str, data: TopicRouteData) -> Route:
    """Turn the answer of a name server into queues and addresses. Raises WireError if it exceeds a limit."""
    if len(data.broker_datas) > ROUTE_BROKERS_MAX:
        raise WireError(f"the route of {topic} has {len(data.broker_datas)} brokers, more than {ROUTE_BROKERS_MAX}")
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas if broker.broker_addrs}
    read: list[MessageQueue] = []
    write: list[MessageQueue] = []
    # A broker listed twice would have each of its queues twice.
    for name, queue in {queue.broker_name: queue for queue in data.queue_datas}.items():
        known = brokers.get(name)
        if known is None:
            continue
        if max(queue.read_queue_nums, queue.write_queue_nums) > TOPIC_QUEUES_MAX:
            raise WireError(f"the route of {topic} has more than {TOPIC_QUEUES_MAX} queues on broker {name}")
        if queue.perm & READ:
            read += [MessageQueue(name, number, topic) for number in range(queue.read_queue_nums)]
        if queue.perm & WRITE and MASTER_ID in known and not data.order_topic_conf:
            write += [MessageQueue(name, number, topic) for number in range(queue.write_queue_nums)]
        if max(len(read), len(write)) > ROUTE_QUEUES_MAX:
            raise WireError(f"the route of {topic} has more than {ROUTE_QUEUES_MAX} queues")
    ordered = _list_ordered(topic, data.order_topic_conf) if data.order_topic_conf else None
    return Route(
        topic,
        tuple(sort_queues(write) if ordered is None else ordered),
        tuple(sort_queues(read)),
        brokers,
        clusters=tuple(sorted({broker.cluster for broker in data.broker_datas if broker.cluster})),
        filter_servers={own: tuple(others) for own, others in data.filter_server_table.items() if others},
    )


def merge_routes(answers: Sequence[TopicRouteData]) -> TopicRouteData:
    """Return what any of the answers of several name servers contains. Where they differ, the first one counts."""
    if len(answers) == 1:
        return answers[0]
    queues = {queue.broker_name: queue for data in reversed(answers) for queue in data.queue_datas}
    filter_servers = {own: others for data in reversed(answers) for own, others in data.filter_server_table.items()}
    return TopicRouteData(
        broker_datas=merge_brokers([broker for data in answers for broker in data.broker_datas]),
        queue_datas=list(queues.values()),
        filter_server_table=filter_servers,
        order_topic_conf=next((data.order_topic_conf for data in answers if data.order_topic_conf), None),
    )


def merge_brokers(brokers: Iterable[BrokerData]) -> list[BrokerData]:
    """Return each broker name once, with all its addresses. Where they differ, the first one counts."""
    found: dict[str, BrokerData] = {}
    for broker in brokers:
        known = found.setdefault(broker.broker_name, broker)
        addresses = {**broker.broker_addrs, **known.broker_addrs}
        found[broker.broker_name] = BrokerData(
            broker_name=broker.broker_name, broker_addrs=addresses, cluster=known.cluster or broker.cluster
        )
    return list(found.values())


def _list_ordered(topic: str, text: str) -> list[MessageQueue]:
    """Return the fixed queues of an ordered topic, given as `broker-a:4;broker-b:4`; shards use this order."""
    queues: list[MessageQueue] = []
    for part in text.split(";"):
        name, _, count = part.partition(":")
        if not name or not count.isdecimal():
            continue
        if len(count) > len(str(TOPIC_QUEUES_MAX)) or len(queues) + int(count) > TOPIC_QUEUES_MAX:
            raise WireError(f"the order of {topic} has more than {TOPIC_QUEUES_MAX} queues")
        queues += [MessageQueue(name, number, topic) for number in range(int(count))]
    return queues
