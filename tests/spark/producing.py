"""Topics with messages in them, for tests of the Spark sources and jobs."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from eruca import Decision, MessageQueue, Outgoing, Producer, Receipt, TransactionalProducer
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CreateTopicHeader, DeleteTopicInNameServerHeader, TopicHeader
from eruca.admin import Admin
from tests.clients.stage import poll
from tests.interop.brokers import Cluster

_Result = TypeVar("_Result")

_NUMBERS = itertools.count()


def name_topic(stem: str = "topic") -> str:
    """A name that no other test of this run has."""
    return f"{stem}-{next(_NUMBERS)}"


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do something asynchronous in its own loop."""
    return asyncio.run(work)


def create_topic(cluster: Cluster, topic: str, queues: int = 4) -> list[MessageQueue]:
    """Make a topic, wait until its route is known, and give its queues in order."""
    return run(_create_topic(cluster.name_server, topic, queues))


def delete_topic(cluster: Cluster, topic: str) -> None:
    """Delete a topic at the broker and at the name server, and wait until its route is gone."""
    run(_delete_topic(cluster.name_server, topic))


def send(
    cluster: Cluster,
    topic: str,
    messages: int | Iterable[Outgoing | bytes],
    *,
    queue: int | None = None,
    queues: int = 4,
    compress: bool = False,
) -> dict[int, int]:
    """Send messages (or this many numbered ones, `message-0`...), spread over the queues or all to one.

    Makes the topic if there is none. Gives how many each queue got.
    """
    if isinstance(messages, int):
        messages = [b"message-%d" % number for number in range(messages)]
    ready: list[Outgoing | bytes] = list(messages)
    return run(_send(cluster.name_server, topic, ready, queue, queues, compress))


def send_transactions(cluster: Cluster, topic: str, decisions: Sequence[Decision]) -> None:
    """Send a half for each decision, and decide it so."""
    run(_send_transactions(cluster.name_server, topic, decisions))


def commit_group(cluster: Cluster, group: str, offsets: dict[MessageQueue, int]) -> None:
    """Commit offsets as a consumer of a group does."""

    async def commit() -> None:
        async with Admin(cluster.name_server) as admin:
            for queue, offset in offsets.items():
                await admin.connection.routes.get(queue.topic)
                await admin.connection.calls.write_offset(
                    admin.connection.find_master(queue.broker_name), group, queue, offset, wait=True
                )

    run(commit())


def wait_for_offsets(cluster: Cluster, ends: dict[MessageQueue, int]) -> None:
    """Wait until queues end where they are to: Java's dispatch comes a moment after its answer to a send."""
    run(_wait_for_ends(cluster.name_server, ends))


async def _create_topic(nameserver: str, topic: str, queues: int) -> list[MessageQueue]:
    async with Admin(nameserver) as admin:
        header = CreateTopicHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6
        )
        for address in (await admin.connection.list_masters()).values():
            await admin.connection.calls.ask(
                address, build_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 10_000
            )
        route = await poll(
            lambda: admin.connection.find_route(topic),
            lambda found: found is not None and len(found.read_queues) >= queues,
        )
        assert route is not None
        return list(route.read_queues)


async def _delete_topic(nameserver: str, topic: str) -> None:
    async with Admin(nameserver) as admin:
        at_broker, at_server = TopicHeader(topic=topic), DeleteTopicInNameServerHeader(topic=topic)
        for address in (await admin.connection.list_masters()).values():
            await admin.connection.calls.ask(
                address, build_request(RequestCode.DELETE_TOPIC_IN_BROKER, at_broker), 10_000
            )
        for server in nameserver.split(";"):
            await admin.connection.calls.ask(
                server, build_request(RequestCode.DELETE_TOPIC_IN_NAMESRV, at_server), 10_000
            )
        await poll(lambda: admin.connection.find_route(topic), lambda found: found is None)


async def _send(
    nameserver: str,
    topic: str,
    messages: list[Outgoing | bytes],
    only: int | None,
    queues: int,
    compress: bool,
) -> dict[int, int]:
    async with Admin(nameserver) as admin:
        route = await admin.connection.find_route(topic)
        before = {} if route is None else await _find_ends(admin, route.read_queues)
    known = list(route.read_queues) if route is not None else await _create_topic(nameserver, topic, queues)
    chosen = known if only is None else [queue for queue in known if queue.queue_id == only]
    counts: dict[MessageQueue, int] = {}
    async with Producer(nameserver, group="spark-tests", timeout=30.0, compress_from=64) as producer:
        shares = {queue: messages[number :: len(chosen)] for number, queue in enumerate(chosen)}
        for queue, share in shares.items():
            if not share:
                continue
            counts[queue] = len(share)
            if compress:
                for each in share:  # a batch is never compressed
                    await producer.send(topic, each if isinstance(each, bytes) else each.body, queue=queue)
            else:
                receipts = await producer.send_batch(topic, share, queue=queue)
                assert receipts
    await _wait_for_ends(nameserver, {queue: before.get(queue, 0) + count for queue, count in counts.items()})
    return {queue.queue_id: count for queue, count in counts.items()}


async def _find_ends(admin: Admin, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    return {
        queue: await admin.connection.calls.find_max_offset(admin.connection.find_master(queue.broker_name), queue)
        for queue in queues
    }


async def _wait_for_ends(nameserver: str, ends: dict[MessageQueue, int]) -> None:
    async with Admin(nameserver) as admin:
        for queue, end in ends.items():
            await admin.connection.routes.get(queue.topic)
            ask = functools.partial(
                admin.connection.calls.find_max_offset, admin.connection.find_master(queue.broker_name), queue
            )
            await poll(ask, end.__le__)


async def _send_transactions(nameserver: str, topic: str, decisions: Sequence[Decision]) -> None:
    async with TransactionalProducer(
        nameserver, group="spark-transactions", check=lambda message: Decision.UNKNOWN
    ) as producer:
        for number, decision in enumerate(decisions):
            await producer.send_transaction(topic, b"half-%d" % number, local=functools.partial(_decide, decision))


def _decide(decision: Decision, _: Receipt) -> Decision:
    return decision
