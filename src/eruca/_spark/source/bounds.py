"""Where a query starts and ends: its queues, and the first and last offset of each, looked up when it is planned."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable

from eruca._client.group.subscriptions import SQL92
from eruca._client.session.route import Route
from eruca._ground.times import from_epoch_ms
from eruca._spark.cluster import Cluster
from eruca._spark.offsets import EARLIEST, LATEST, Offsets, name_queue
from eruca._spark.source.dataloss import report_loss
from eruca._spark.source.options import NO_MESSAGE_FAIL, NO_MESSAGE_LATEST, SourceOptions
from eruca._spark.source.partitions import QueueRange
from eruca._spark.source.positions import AT_EARLIEST, AT_LATEST, Committed, Place, Position
from eruca._spark.timestamps import Timestamp
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from eruca.errors import ConfigError, ErucaError, NoRoute

log = logging.getLogger(__name__)


# -- queues ------------------------------------------------------------------------------------------------------------


def find_queues(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    """Return the queues that a query reads, sorted. Raises NoRoute for a missing topic if failOnDataLoss is true."""
    if options.assigned:
        return _find_assigned(cluster, options)
    topics = match_topics(cluster, options.pattern) if options.pattern else list(options.topics)
    found: list[MessageQueue] = []
    for topic in topics:
        route = _find_route(cluster, topic, options)
        if route is not None:
            found += route.read_queues
    return sorted(found)


def match_topics(cluster: Cluster, pattern: str) -> list[str]:
    """Return the topics whose whole name matches; retries and dead letters only for patterns such as `%DLQ%.*`."""
    names = cluster.list_topics()
    # A pattern such as `.*` is not meant to match these.
    hidden = {name for name in names if is_system_topic(name)}
    # Every broker and every cluster has a topic named after it.
    for name, brokers in cluster.run(cluster.insist(cluster.connection.list_clusters)).items():
        hidden.update((name, *brokers))
    if not pattern.startswith(("%", "\\%", "(%")):
        hidden |= {name for name in names if name.startswith((RETRY_PREFIX, DLQ_PREFIX))}
    matching = [name for name in names if name not in hidden and re.fullmatch(pattern, name)]
    if not matching:
        log.warning("no topic matches %s", pattern)
    return matching


def _find_route(cluster: Cluster, topic: str, options: SourceOptions) -> Route | None:
    try:
        return cluster.run(cluster.insist(lambda: cluster.connection.routes.refresh(topic)))
    except NoRoute as error:
        if options.loss == "true":
            raise
        report_loss(options.loss, f"topic {topic} is skipped: {error.args[0]}")
        return None


def _find_assigned(cluster: Cluster, options: SourceOptions) -> list[MessageQueue]:
    known: set[MessageQueue] = set()
    missing: set[str] = set()
    for topic in dict.fromkeys(queue.topic for queue in options.assigned):
        route = _find_route(cluster, topic, options)
        if route is None:
            missing.add(topic)
        else:
            known.update(route.read_queues)
    for queue in options.assigned:
        if queue not in known and queue.topic not in missing:
            there = ", ".join(f"{q.broker_name}:{q.queue_id}" for q in sorted(known) if q.topic == queue.topic)
            report_loss(options.loss, f"assign contains {name_queue(queue)}, but the topic has only: {there[:500]}")
    return sorted(known.intersection(options.assigned))


def check_filter(cluster: Cluster, options: SourceOptions, topics: Iterable[str]) -> None:
    """Check that the brokers of topics accept an SQL92 expression. Raises ConfigError."""
    for topic in topics:
        subscription = options.make_subscription(topic)
        if subscription.kind != SQL92:
            return
        route = cluster.connection.routes.peek(topic)
        for name, by_id in route.brokers.items() if route is not None else ():
            address = next(iter(by_id.values()))
            check = cluster.calls.check_subscription(
                address, cluster.connection.session.client_id, options.consumer_group, subscription.data
            )
            try:
                cluster.run(check)
            except ErucaError as error:
                raise ConfigError(
                    f"option sql92={subscription.text!r}: broker {name} cannot evaluate it: {error.args[0]}",
                    hint="a Java broker needs enablePropertyFilter=true; or filter in Spark instead",
                ) from error


# -- offsets -----------------------------------------------------------------------------------------------------------


def find_offsets(
    cluster: Cluster,
    queues: Collection[MessageQueue],
    position: Position,
    now_ms: int,
    *,
    is_end: bool = False,
    no_message: str = NO_MESSAGE_LATEST,
) -> Offsets:
    """Return the offset of a position in each queue. Offsets given by the user are returned unchecked.

    A queue for which the user or the group has no offset starts at its first message, or ends at its last. In a queue
    without a message at a time or later, `no_message` decides. Raises ConfigError.
    """
    by_place: dict[Place, list[MessageQueue]] = {}
    if position.places is None:
        assert position.everywhere is not None
        by_place[position.everywhere] = list(queues)
    else:
        position.places.check(position.option, queues)
        for queue in queues:
            place = position.places.find(queue)
            by_place.setdefault((LATEST if is_end else EARLIEST) if place is None else place, []).append(queue)
    found: Offsets = {}
    for place, there in by_place.items():
        if isinstance(place, Timestamp):
            found |= _find_since(cluster, there, place.resolve(now_ms), NO_MESSAGE_LATEST if is_end else no_message)
        elif isinstance(place, Committed):
            found |= _find_group(cluster, there, place.group)
        elif place >= 0:
            found |= dict.fromkeys(there, place)
        else:
            found |= _find_ends(cluster, there, place)
    return {queue: found[queue] for queue in queues}


def _find_since(cluster: Cluster, queues: list[MessageQueue], time_ms: int, no_message: str) -> Offsets:
    found = cluster.find_since(queues, time_ms)
    if no_message == NO_MESSAGE_LATEST:
        return found
    # Asked afterwards: a message that has arrived in between was stored at the time or later.
    ends = cluster.find_ends(queues)
    late = [queue for queue in queues if found[queue] >= ends[queue]]
    if late and no_message == NO_MESSAGE_FAIL:
        time = from_epoch_ms(time_ms)
        raise ConfigError(
            f"{_name_some(late)} has no message stored at {time.isoformat() if time else time_ms} or later",
            hint="startingOffsetsByTimestampStrategy=latest starts there with what arrives next,"
            " earliest with the first message",
        )
    return found | _find_ends(cluster, late, EARLIEST)


def _name_some(queues: list[MessageQueue]) -> str:
    return name_queue(queues[0]) + (f" (and {len(queues) - 1} more)" if len(queues) > 1 else "")


def _find_ends(cluster: Cluster, queues: list[MessageQueue], end: int) -> Offsets:
    if not queues:
        return {}
    return cluster.find_begins(queues) if end == EARLIEST else cluster.find_ends(queues)


def _find_group(cluster: Cluster, queues: list[MessageQueue], group: str) -> Offsets:
    committed = cluster.read_group(group, queues)
    young = [queue for queue, offset in committed.items() if offset is None]
    if young:
        log.warning(
            "group %s has no offset in %d of %d queues; they are read from their first message: %s",
            group,
            len(young),
            len(queues),
            "; ".join(name_queue(queue) for queue in young[:5]),
        )
    begins = _find_ends(cluster, young, EARLIEST)
    return {queue: begins[queue] if offset is None else offset for queue, offset in committed.items()}


def check_offsets(
    offsets: Offsets, begins: Offsets, ends: Offsets, loss: str, *, what: str = "should be read from"
) -> Offsets:
    """Move offsets outside their queue to its nearest end, and report them as data loss."""
    checked: Offsets = {}
    for queue, offset in offsets.items():
        begin, end = begins[queue], ends[queue]
        if offset < begin:
            report_loss(loss, f"{name_queue(queue)}, {what} {offset}, but now begins at {begin}")
        elif offset > end:
            report_loss(loss, f"{name_queue(queue)}, {what} {offset}, but ends at {end}")
        checked[queue] = min(max(offset, begin), end)
    return checked


def find_batch(cluster: Cluster, options: SourceOptions, now_ms: int) -> list[QueueRange]:
    """Return what a batch reads. Raises ConfigError, OffsetLost and NoRoute."""
    queues = find_queues(cluster, options)
    if not queues:
        return []
    check_filter(cluster, options, dict.fromkeys(queue.topic for queue in queues))
    start, end = options.start or AT_EARLIEST, options.end or AT_LATEST
    begins, ends = cluster.find_begins(queues), cluster.find_ends(queues)
    starts = (
        begins if start == AT_EARLIEST else find_offsets(cluster, queues, start, now_ms, no_message=options.no_message)
    )
    stops = ends if end == AT_LATEST else find_offsets(cluster, queues, end, now_ms, is_end=True)
    if start.has_offsets and end.has_offsets:
        for queue in queues:
            if starts[queue] > stops[queue]:
                raise ConfigError(
                    f"{name_queue(queue)}, would be read from {starts[queue]} to {stops[queue]}",
                    hint="startingOffsets must not be greater than endingOffsets",
                )
    starts = check_offsets(starts, begins, ends, options.loss)
    stops = check_offsets(stops, begins, ends, options.loss, what="should be read up to")
    return [
        QueueRange(queue, starts[queue], stops[queue], cluster.find_address(queue))
        for queue in queues
        if starts[queue] < stops[queue]
    ]
