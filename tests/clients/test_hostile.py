"""Clients against a hostile server: they raise their own errors, and nothing hangs past its time.

Each operation runs with `ERUCA_SEEDS` seeds (half of them in `make test`), some at a time, because most of the time
they wait. One seed alone: `ERUCA_SEED=7 pytest tests/clients/test_hostile.py -k ordered`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from eruca import (
    ClientOptions,
    Consumer,
    Flow,
    Message,
    Offsets,
    Outcome,
    Producer,
    PullConsumer,
    Rebalance,
    Retry,
    Sql,
)
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca._wire.headers import QueryMessageHeader
from eruca.errors import ErucaError
from tests.clients.hostile import BROKER, TOPIC, HostilePeer
from tests.figures import note_figures

T = TypeVar("T")

SEEDS = int(os.environ.get("ERUCA_SEEDS", "100"))
ONE_SEED = os.environ.get("ERUCA_SEED")
# How many run at the same time.
_AT_ONCE = 25
_CALL_MS = 200
_SEND_S = 0.3
# How long a consumer is left alone with its server.
_STAY_S = 0.5
_DRAIN_S = 0.3
# How long a start waits for queues, which many of these servers never give.
_START_S = 1.0
# No timing test: what takes five times as long as it may, and then some for a busy machine, hangs.
_PATIENCE = 5
_BUSY_S = 10.0
# Above what it was before, servers included: routes and bodies that pretend to be gigabytes must not get to be it.
_MEMORY_BYTES_MAX = 1024 * 1024 * 1024
_FLOW = Flow(hold=0.1, timeout=0.3, error_pause=0.02)


@dataclass
class World:
    """One client with one hostile server."""

    peer: HostilePeer
    rng: Random
    directory: Path
    faults: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def options(self) -> ClientOptions:
        """A client in a hurry."""
        return ClientOptions(
            nameservers=self.peer.address,
            call_timeout=_CALL_MS / 1000,
            route_interval=0.1,
            heartbeat_interval=0.1,
            ip="127.0.0.1",
            calls_max=1000,
        )

    async def expect(self, what: str, work: Awaitable[T], seconds: float) -> T | None:
        """Wait for an operation that returns or raises an error of ours, in time."""
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait((task,), timeout=seconds * _PATIENCE + _BUSY_S)
        if not done:
            self.faults.append(f"{what} hangs: {task}")
            task.print_stack()
            task.cancel()
            await asyncio.wait((task,), timeout=1)
            return None
        try:
            return task.result()
        except ErucaError as error:
            self.errors[type(error).__name__] += 1
        except BaseException as error:
            self.faults.append(f"{what} raised {error!r}")
            logging.getLogger("hostile").error("%s", what, exc_info=error)
        return None

    def read(self, message: Message) -> None:
        """Look at everything a message says."""
        for name in (
            "topic", "body", "tags", "keys", "properties", "all_properties", "message_id", "offset_id", "origin_id",
            "transaction_id", "offset", "flag", "born_at", "stored_at", "born_host", "store_host",
        ):  # fmt: skip
            try:
                getattr(message, name)
            except ErucaError as error:
                self.errors[type(error).__name__] += 1
            except Exception as error:
                self.faults.append(f"message.{name} raised {error!r}")
        repr(message)


# --- what a client can do -----------------------------------------------------------------------------------------


@asynccontextmanager
async def open_producer(world: World, **how: Any) -> AsyncIterator[Producer]:
    producer = Producer(group="shop", options=world.options, timeout=_SEND_S, **how)
    await world.expect("Producer.start", producer.start(), _SEND_S)
    yield producer
    await world.expect("Producer.close", producer.close(), _SEND_S + _CALL_MS / 1000)


async def send(world: World) -> None:
    async with open_producer(world, trace=world.rng.random() < 0.2) as producer:
        for number in range(3):
            body = b"x" * world.rng.choice((1, 10, 10_000))
            await world.expect("send", producer.send(TOPIC, body, keys=[str(number)]), _SEND_S)
        await world.expect("send to a shard", producer.send(TOPIC, b"x", shard="a"), _SEND_S)
        await world.expect("send with a delay", producer.send("other", b"x", delay_level=3), _SEND_S)


async def send_batch(world: World) -> None:
    async with open_producer(world) as producer:
        await world.expect("send_batch", producer.send_batch(TOPIC, [b"x"] * 100), _SEND_S)
        await world.expect("send_batch", producer.send_batch("other", [b"x" * 100] * 3), _SEND_S)


async def send_oneway(world: World) -> None:
    async with open_producer(world) as producer:
        for _ in range(5):
            await world.expect("send_oneway", producer.send_oneway(TOPIC, b"x" * 1000), _SEND_S)


async def send_much(world: World) -> None:
    async with open_producer(world, in_flight_max=2, avoid_slow_brokers=True) as producer:
        sends = [world.expect("a send in a full window", producer.send(TOPIC, b"x"), _SEND_S) for _ in range(12)]
        await asyncio.gather(*sends)
        for _ in range(5):
            soon = await world.expect("send_soon in a full window", producer.send_soon(TOPIC, b"x"), _SEND_S)
            if soon is not None:
                soon.add_done_callback(lambda done: done.cancelled() or done.exception())


async def request(world: World) -> None:
    async with open_producer(world) as producer:
        for _ in range(2):
            await world.expect("request", producer.request(TOPIC, b"x", timeout=_SEND_S), _SEND_S)


async def transact(world: World) -> None:
    async def check(message: Message) -> Decision:
        world.read(message)
        return world.rng.choice(list(Decision))

    producer = TransactionalProducer(group="shop", options=world.options, timeout=_SEND_S, check=check)
    # Finding the brokers and telling them of us comes before the half.
    seconds = _SEND_S + 7 * _CALL_MS / 1000

    async def send_in_block() -> None:
        async with producer.transaction(TOPIC, b"half"):
            await asyncio.sleep(0)

    await world.expect("TransactionalProducer.start", producer.start(), _SEND_S)
    for _ in range(3):
        work = producer.send_transaction(TOPIC, b"half", local=lambda receipt: world.rng.choice(list(Decision)))
        await world.expect("send_transaction", work, seconds)
        await world.expect("transaction", send_in_block(), seconds)
    await world.expect("TransactionalProducer.close", producer.close(), seconds)


async def look_up(world: World) -> None:
    """Routes, and every question of a client that is neither a send nor a pull."""
    session = Session.acquire(world.options)
    address, queue, call_s = world.peer.address, MessageQueue(BROKER, 0, TOPIC), _CALL_MS / 1000
    calls, routes = session.calls, session.routes
    query = QueryMessageHeader(topic=TOPIC, key="k", max_num=3, begin_timestamp=0, end_timestamp=1)
    try:
        for _ in range(2):
            work = [
                world.expect("routes.get", routes.get(TOPIC), 4 * call_s),
                world.expect("routes.get_for_send", routes.get_for_send("other"), 6 * call_s),
                world.expect("routes.refresh", routes.refresh(TOPIC), 4 * call_s),
                world.expect("routes.refresh_all", routes.refresh_all(), 4 * call_s),
                world.expect("list_members", calls.list_members(address, "g"), call_s),
                world.expect("lock", calls.lock(address, "g", "me", [queue]), call_s),
                world.expect("unlock", calls.unlock(address, "g", "me", [queue]), call_s),
                world.expect("read_offset", calls.read_offset(address, "g", queue), call_s),
                world.expect("has_offset", calls.has_offset(address, "g", queue), call_s),
                world.expect("write_offset", calls.write_offset(address, "g", queue, 3, wait=True), call_s),
                world.expect("find_min_offset", calls.find_min_offset(address, queue), call_s),
                world.expect("find_max_offset", calls.find_max_offset(address, queue), call_s),
                world.expect("find_offset_at", calls.find_offset_at(address, queue, 1), call_s),
                world.expect("view_message", calls.view_message(address, 0), call_s),
                world.expect("query_messages", calls.query_messages(address, query), call_s),
            ]
            await asyncio.gather(*work)
    finally:
        await world.expect("Session.release", session.release(), call_s)


async def pull(world: World) -> None:
    """A pull consumer, in balance or with queues of its choice."""
    rng, call_s = world.rng, _CALL_MS / 1000
    is_member = rng.random() < 0.6
    consumer = PullConsumer(
        group="g",
        options=world.options,
        subscribe=TOPIC if is_member else (),
        start="earliest",
        flow=_FLOW,
        offsets=Offsets(interval=0.05, directory=world.directory),
        rebalance=Rebalance(interval=0.1),
    )
    consumer._member.settings = replace(consumer._member.settings, start_seconds_max=_START_S)
    await world.expect("PullConsumer.start", consumer.start(), 10 * call_s)
    queue = MessageQueue(BROKER, 0, TOPIC)
    if not is_member:
        found = await world.expect("list_queues", consumer.list_queues(TOPIC), 4 * call_s)
        await world.expect("assign", consumer.assign((found or [queue])[:50]), 10 * call_s)
    for _ in range(2):
        messages = await world.expect("poll", consumer.poll(0.1, 10), 0.1) or []
        for message in messages:
            world.read(message)
            if rng.random() < 0.02:
                await world.expect("send_back", consumer.send_back(message), 15.0)
        await world.expect("pull", consumer.pull(queue, rng.choice((0, -1, 5, 2**40)), timeout=0.2), 6 * call_s)
        await world.expect("seek", consumer.seek(queue, 3), 6 * call_s)
        await world.expect("seek_to_time", consumer.seek_to_time(queue, datetime(2020, 1, 1, tzinfo=UTC)), 40 * call_s)
        await world.expect("committed", consumer.committed(queue), 6 * call_s)
        await world.expect("commit", consumer.commit(), 6 * call_s)
    await world.expect("view", consumer.view("7F00000100002A9F0000000000000000"), 6 * call_s)
    await world.expect("query", consumer.query(TOPIC, "key"), 6 * call_s)
    await world.expect("PullConsumer.close", consumer.close(), 6 * call_s)


@asynccontextmanager
async def open_consumer(world: World, consumer: Consumer) -> AsyncIterator[bool]:
    call_s = _CALL_MS / 1000
    # For each of two topics: a route, why there is none, and again; then heartbeats.
    await world.expect("Consumer.start", consumer.start(), 14 * call_s)
    is_started = consumer._is_started
    yield is_started
    # Handlers, offsets, locks, leaving.
    await world.expect("Consumer.close", consumer.close(), 2 * _DRAIN_S + 6 * call_s)


def make_consumer(world: World, **how: Any) -> Consumer:
    consumer = Consumer(
        group="g",
        options=world.options,
        start=world.rng.choice(("earliest", "latest")),
        flow=_FLOW,
        drain=_DRAIN_S,
        retry=Retry(suspend=0.05, handler_timeout=0.2),
        offsets=Offsets(interval=0.05, directory=world.directory),
        rebalance=Rebalance(
            strategy=world.rng.choice(("average", "circle", "consistent-hash")), interval=0.1, lock_interval=0.1
        ),
        **how,
    )
    consumer._member.settings = replace(consumer._member.settings, start_seconds_max=_START_S)
    return consumer


async def iterate(world: World) -> None:
    consumer = make_consumer(world, subscribe=world.rng.choice((TOPIC, {TOPIC: "vip"}, {TOPIC: Sql("a > 1")})))

    async def read() -> None:
        async for message in consumer:
            world.read(message)
            done = world.rng.choice((message.ack, message.ack, message.retry, message.bury))
            await world.expect("settling a message", done(), 15.0)

    async with open_consumer(world, consumer) as is_started:
        if not is_started:
            return
        reader = asyncio.ensure_future(read())
        await asyncio.wait((reader,), timeout=_STAY_S)
        await world.expect("commit", consumer.commit(), 1.0)
    await world.expect("the end of `async for`", reader, _SEND_S)


async def _handle(world: World, **how: Any) -> None:
    consumer = make_consumer(world, broadcast=how.pop("broadcast", False))
    plain = how.pop("plain", False)
    outcomes = (None, None, None, Outcome.LATER, Outcome.DEAD)

    async def work(message: Message) -> Outcome | None:
        world.read(message)
        await asyncio.sleep(world.rng.choice((0, 0, 0, 0.01)))
        return world.rng.choice(outcomes)

    def work_plainly(message: Message) -> Outcome | None:
        world.read(message)
        return world.rng.choice(outcomes)

    register: Callable[[Any], Any] = consumer.handler(TOPIC, **how)
    register(work_plainly if plain else work)
    async with open_consumer(world, consumer) as is_started:
        if is_started:
            await asyncio.sleep(_STAY_S)


async def handle(world: World) -> None:
    await _handle(world, concurrency=world.rng.choice((1, 20)), batch=1)


async def handle_plainly(world: World) -> None:
    await _handle(world, plain=True, concurrency=3)


async def handle_broadcast(world: World) -> None:
    await _handle(world, broadcast=True)


async def handle_ordered(world: World) -> None:
    await _handle(world, ordered=True)


OPERATIONS: dict[str, Callable[[World], Awaitable[None]]] = {
    "send": send,
    "batch": send_batch,
    "oneway": send_oneway,
    "much": send_much,
    "request": request,
    "transaction": transact,
    "pull": pull,
    "lookups": look_up,
    "iterate": iterate,
    "handlers": handle,
    "threads": handle_plainly,
    "broadcast": handle_broadcast,
    "ordered": handle_ordered,
}


# --- many seeds -----------------------------------------------------------------------------------------------------


class _Complaints(logging.Handler):
    """Keeps what our own code logs as a mistake of its own: an error with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.texts.append(logging.Formatter().format(record))


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What is logged with a traceback, by us and by asyncio."""
    handler = _Complaints()
    loggers = [logging.getLogger(name) for name in ("eruca", "asyncio", "hostile")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.texts
    for logger in loggers:
        logger.removeHandler(handler)


async def run_seed(name: str, seed: int, directory: Path) -> World:
    """One operation against one hostile server."""
    peer = HostilePeer(seed)
    await peer.start()
    world = World(peer, Random(f"{name} {seed}"), directory / f"{name}-{seed}")
    try:
        await OPERATIONS[name](world)
    finally:
        await peer.stop()
    return world


def find_left_overs() -> set[asyncio.Task[Any]]:
    """Tasks that were left running."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.whole)])
async def test_a_hostile_server_gets_nothing_but_errors_of_ours(
    half: int, name: str, tmp_path: Path, complaints: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    # A warning for everything that goes wrong is right, and too much for a report.
    caplog.set_level(logging.ERROR)
    seeds = [int(ONE_SEED)] if ONE_SEED else list(range(half * SEEDS // 2, (half + 1) * SEEDS // 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    done: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    faults: list[str] = []
    for start in range(0, len(seeds), _AT_ONCE):
        some = seeds[start : start + _AT_ONCE]
        worlds = await asyncio.gather(*[run_seed(name, seed, tmp_path) for seed in some])
        for seed, world in zip(some, worlds, strict=True):
            done += world.peer.done
            errors += world.errors
            faults += [f"seed {seed}: {fault}" for fault in world.faults]
        if left := find_left_overs():
            await asyncio.wait(left, timeout=5)  # some end on their own, now that the servers are gone
        gc.collect()
        among = f"one of the seeds {some[0]} to {some[-1]}"
        faults += [f"{among} left {task}" for task in find_left_overs()]
        faults += [f"{among} made us log: {text}" for text in complaints]
        complaints.clear()
        if faults:
            break
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    note_figures(
        f"\n{name}: {len(seeds)} seeds ({seeds[0]} to {seeds[-1]}), {sum(done.values()) - done['right']} bad answers"
    )
    note_figures(f"  done to the client: {dict(done.most_common())}\n  raised by it: {dict(errors.most_common())}")
    note_figures(f"  memory grew by {grown / 2**20:.0f} MiB")
    replay = f"replay one: ERUCA_SEED=n .venv/bin/python -m pytest -s tests/clients/test_hostile.py -k {name}"
    assert not faults, "\n".join([*faults[:20], replay])
    assert grown < _MEMORY_BYTES_MAX
