"""The filter server as users run it: separate processes, a consumer with a module, and modules that attack."""

from __future__ import annotations

import asyncio
import base64
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eruca import ClassFilter, Consumer, Message, Offsets, Producer, PullConsumer
from eruca._client.session.session import Session
from eruca._wire.bodies import MessageQueue
from eruca.errors import ErucaError, RequestRefused
from tests.figures import note_figures
from tests.integration.cli.upprocess import Up, choose_ports
from tests.interop.javapeer import JavaProgram, Peer
from tests.patience import PATIENCE_S
from tests.unit.filterserver import modules
from tests.unit.filterserver.modules import NAME
from tests.unit.filterserver.test_plugins import install

SEED = 6
COUNT = 600
SECONDS_MAX = PATIENCE_S
# What one process of a filter server may grow by while modules ask it for 4 GiB.
GROWTH_MB_MAX = 200
# The minimum number of attacks of each kind, and the messages sent to other groups meanwhile.
ATTACKS_MIN = 10
BASELINE = 100
WITNESSES = 200


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A name server and a broker that accepts filter servers."""
    with Up(tmp_path_factory.mktemp("up"), *choose_ports(), "--filter-server-nums", "1") as started:
        yield started


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The same, for tests that start and stop filter servers themselves."""
    with Up(tmp_path_factory.mktemp("bare"), *choose_ports(), "--filter-server-nums", "1") as started:
        yield started


def start_filter_server(up: Up, *arguments: str | Path) -> Up:
    return Up(up.directory, "-b", up.facts["broker"], *arguments, command="filterserver")


@pytest.fixture(scope="module")
def filter_server(up: Up) -> Iterator[Up]:
    with start_filter_server(up) as started:
        yield started


async def wait_until(is_so: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    """Poll until a condition holds."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                found = is_so()
                if found is True or (not isinstance(found, bool) and await found):
                    return
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"not within {SECONDS_MAX} s: {what}")


async def list_filter_servers(session: Session, topic: str) -> list[str]:
    route = await session.routes.refresh(topic)
    return [address for addresses in route.filter_servers.values() for address in addresses]


async def measure_lags(consumer: PullConsumer, topic: str) -> list[int]:
    """Return the distance of the group's stored offsets from the ends of its queues."""
    queues = await consumer.list_queues(topic)
    return [await consumer.end_offset(queue) - (await consumer.committed(queue) or 0) for queue in queues]


@asynccontextmanager
async def consume(up: Up, group: str, wanted: str | ClassFilter, topic: str, got: list[str]) -> AsyncIterator[Consumer]:
    """A consumer that writes down what it gets."""
    consumer = Consumer(up.address, group=group, start="earliest", offsets=Offsets(interval=0.1))

    @consumer.handler(topic, tags=wanted)
    async def keep(message: Message) -> None:
        got.append(message.body.decode())

    async with consumer:
        yield consumer


async def send_letters(up: Up, topic: str, count: int, chance: random.Random) -> list[str]:
    """Messages that begin with one of three letters, over four queues; the last of each queue are unwanted."""
    bodies = [f"{chance.choice('ABC')}{number}" for number in range(count)]
    bodies[-20:] = [f"C{number}" for number in range(count - 20, count)]
    async with Producer(up.address, group="letters") as producer:
        for body in bodies:
            await producer.send(topic, body.encode(), properties={"kind": body[0]})
    return bodies


async def test_filtered_pulls_reach_a_consumer_and_its_offsets_advance(up: Up, filter_server: Up) -> None:
    assert filter_server.facts["name"] == up.facts["name"]
    bodies = await send_letters(up, "Letters", COUNT, random.Random(SEED))
    expected = {body for body in bodies if body[0] == "A"}
    got: list[str] = []
    wanted = ClassFilter(NAME, modules.want_first("A"))
    async with PullConsumer(up.address, group="readers") as watcher, consume(up, "readers", wanted, "Letters", got):
        assert await list_filter_servers(watcher._session, "Letters") == [filter_server.facts["filterserver"]]
        await wait_until(lambda: len(got) >= len(expected), "all wanted messages")

        async def is_done() -> bool:
            return not any(await measure_lags(watcher, "Letters"))

        await wait_until(is_done, "offsets at the ends of the queues")
    assert sorted(got) == sorted(expected)
    note_figures(
        f"seed {SEED}: {COUNT} sent, {len(got)} wanted and delivered once each, offsets at the ends of all queues"
    )


async def test_pull_consumers_use_it_too(up: Up, filter_server: Up) -> None:
    await send_letters(up, "Pulled", 100, random.Random(SEED))
    wanted = ClassFilter(NAME, modules.want_first("B"))
    async with PullConsumer(up.address, group="pullers", auto_commit=False, start="earliest") as consumer:
        queues = await consumer.list_queues("Pulled")
        direct: list[str] = []
        for queue in queues:
            offset, end = 0, await consumer.end_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, tags=wanted)
                assert result.next_offset > offset
                direct += [message.body.decode() for message in result.messages]
                offset = result.next_offset
        await consumer.assign(queues, tags=wanted)
        polled: list[str] = []
        while len(polled) < len(direct):
            polled += [message.body.decode() for message in await consumer.poll(5.0)]
    assert direct and {body[0] for body in direct} == {"B"}
    assert sorted(polled) == sorted(direct)


def read_memory_mb(process: Up) -> float:
    """The most memory a process ever had, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def time_messages(producer: Producer, got: list[str], count: int) -> list[float]:
    """Send messages one after the other; return how long each takes to reach its consumer, in milliseconds."""
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(count):
        number, sent = len(got), loop.time()
        await producer.send("Witnessed", f"W{number}".encode())
        await wait_until(lambda number=number: len(got) > number, "a message through the same server")  # type: ignore[misc]
        waits.append((loop.time() - sent) * 1000)
    return waits


def describe(waits: list[float]) -> str:
    """Median, 99th percentile and longest."""
    ordered = sorted(waits)
    return f"{ordered[len(waits) // 2]:.0f} ms (p99 {ordered[len(waits) * 99 // 100]:.0f}, longest {ordered[-1]:.0f})"


class Attack:
    """Uploads hostile modules, each a new one, and pulls through them."""

    def __init__(self, up: Up, topic: str) -> None:
        self._up = up
        self._topic = topic
        self.reasons: list[str] = []
        self.count = 0
        self.is_over = asyncio.Event()

    async def run(self, kind: str) -> None:
        """Attack repeatedly with one kind of module, until told to stop."""
        async with PullConsumer(self._up.address, group=f"attack-{kind}", auto_commit=False) as consumer:
            queues = await consumer.list_queues(self._topic)
            number = 0
            while number < ATTACKS_MIN or not self.is_over.is_set():
                number += 1
                # Another constant makes it another module, so that cached results of the last one do not help.
                module = ClassFilter(NAME, make_hostile(kind, number))
                for answer in await asyncio.gather(
                    *[self._pull(consumer, queue, module) for queue in queues], return_exceptions=True
                ):
                    assert isinstance(answer, RequestRefused), answer
                    self.reasons.append(str(answer))
                self.count += 1

    @staticmethod
    async def _pull(consumer: PullConsumer, queue: MessageQueue, module: ClassFilter) -> None:
        await consumer.pull(queue, 0, tags=module)


def make_hostile(kind: str, number: int) -> bytes:
    mark = f"(drop (i32.const {number}))"
    code = {
        "endless": "(loop (br 0)) (i32.const 1)",
        "memory": "(loop (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))"
        " (i32.store (i32.mul (i32.sub (memory.size) (i32.const 1)) (i32.const 65536)) (i32.const 7)) (br 0))"
        " (i32.const 1)",
        "recursion": "(i32.add (i32.const 1) (call $self (local.get $at) (local.get $size)))",
    }
    return modules.make_module(f"{mark} {code[kind]}")


async def test_hostile_modules_are_stopped_and_nobody_else_notices(up: Up, filter_server: Up) -> None:
    await send_letters(up, "Prey", 100, random.Random(SEED))
    await send_letters(up, "Witnessed", 40, random.Random(SEED))
    filtered: list[str] = []
    plain: list[str] = []
    wanted = ClassFilter(NAME, modules.want_first("W"))
    before = await asyncio.to_thread(read_memory_mb, filter_server)
    attack = Attack(up, "Prey")
    async with (
        consume(up, "witnessed-readers", wanted, "Witnessed", filtered),
        consume(up, "others", "*", "Witnessed", plain),
        Producer(up.address, group="witnesses") as producer,
    ):
        await wait_until(lambda: len(plain) == 40, "the first messages")
        quiet = await time_messages(producer, filtered, BASELINE)
        attacks = [asyncio.create_task(attack.run(kind)) for kind in ("endless", "memory", "recursion")]
        attacked = await time_messages(producer, filtered, WITNESSES)
        attack.is_over.set()
        await asyncio.gather(*attacks)
        await wait_until(lambda: len(plain) == 40 + BASELINE + WITNESSES, "all messages past the server")
    grown = await asyncio.to_thread(read_memory_mb, filter_server) - before
    assert sorted(filtered) == sorted(f"W{number}" for number in range(BASELINE + WITNESSES))
    stopped = {
        "instructions": sum("instructions for one message" in reason for reason in attack.reasons),
        "memory": sum("unreachable" in reason for reason in attack.reasons),
        "stack": sum("calls nest deeper" in reason for reason in attack.reasons),
    }
    assert sum(stopped.values()) == len(attack.reasons)
    assert all(stopped.values())
    assert grown < GROWTH_MB_MAX
    note_figures(
        f"seed {SEED}: {len(attack.reasons)} pulls through {attack.count} hostile modules stopped {stopped}, the "
        f"server grew by {grown:.0f} MB; {BASELINE} messages for others before took {describe(quiet)}, "
        f"{WITNESSES} meanwhile {describe(attacked)}"
    )


async def test_a_consumer_goes_on_with_the_next_filter_server(bare: Up) -> None:
    got: list[str] = []
    wanted = ClassFilter(NAME, modules.want_first("A"))
    async with Producer(bare.address, group="letters") as producer:
        first = await asyncio.to_thread(start_filter_server, bare)
        try:
            await producer.send("Next", b"A1")
            async with consume(bare, "next-readers", wanted, "Next", got) as consumer:
                await wait_until(lambda: got == ["A1"], "the first message")
                await asyncio.to_thread(first.end, signal.SIGKILL)
                for body in (b"B2", b"A3"):
                    await producer.send("Next", body)

                async def is_gone() -> bool:
                    return await list_filter_servers(consumer._session, "Next") == []

                await wait_until(is_gone, "a route without the filter server")
                second = await asyncio.to_thread(start_filter_server, bare)
                try:
                    await wait_until(lambda: len(got) == 2, "the message sent in between")
                finally:
                    await asyncio.to_thread(second.end)
        finally:
            await asyncio.to_thread(first.end)
    assert got == ["A1", "A3"]


@pytest.mark.whole
def test_a_java_consumer_uploads_a_module(up: Up, filter_server: Up, peer: Peer, tmp_path: Path) -> None:
    bodies = asyncio.run(send_letters(up, "ForJava", 100, random.Random(SEED)))
    expected = sorted(body for body in bodies if body[0] == "A")
    question = {
        "nameServer": up.address,
        "group": "java-readers",
        "topic": "ForJava",
        "className": NAME,
        # Java's client expects source text; the base64 of a module is accepted as one.
        "source": base64.b64encode(modules.want_first("A")).decode(),
        "count": len(expected),
    }
    with JavaProgram(peer, "eruca.interop.ClassFilterConsumer", tmp_path) as program:
        rows = program.ask(question)
    assert sorted(rows) == expected
    note_figures(f"seed {SEED}: 100 sent, {len(rows)} wanted and delivered to a consumer in Java")


async def test_installed_classes_and_no_uploads(bare: Up) -> None:
    source = """
from eruca._filterserver.plugins import FilterClass, FilterMessage
class OnlyA(FilterClass):
    def matches(self, message: FilterMessage) -> bool:
        return message.properties.get("kind") == "A"
"""
    await asyncio.to_thread(install, bare.directory / "filters", source=source)
    flags: list[str | Path] = [
        "--filter-plugin-path",
        bare.directory / "filters",
        "--client-upload-filter-class-enable",
        "false",
    ]
    server = await asyncio.to_thread(start_filter_server, bare, *flags)
    try:
        bodies = await send_letters(bare, "Installed", 60, random.Random(SEED))
        got: list[str] = []
        async with consume(bare, "installed-readers", ClassFilter("OnlyA"), "Installed", got):
            await wait_until(lambda: len(got) >= sum(body[0] == "A" for body in bodies), "all wanted messages")
        async with PullConsumer(bare.address, group="strangers") as consumer:
            queue = (await consumer.list_queues("Installed"))[0]
            with pytest.raises(RequestRefused, match="accepts no uploads"):
                await consumer.pull(queue, 0, tags=ClassFilter(NAME, modules.EVERYTHING))
    finally:
        await asyncio.to_thread(server.end)
    assert server.facts["installed"] == "OnlyA"
    assert sorted(got) == sorted(body for body in bodies if body[0] == "A")


@pytest.mark.whole
async def test_a_broker_takes_none_unless_told(tmp_path: Path) -> None:
    up = await asyncio.to_thread(Up, tmp_path)
    try:
        server = await asyncio.to_thread(start_filter_server, up)
        async with Producer(up.address, group="letters") as producer:
            await producer.send("Letters", b"A")
        async with PullConsumer(up.address, group="readers") as consumer:
            assert await list_filter_servers(consumer._session, "Letters") == []
            queue = (await consumer.list_queues("Letters"))[0]
            with pytest.raises(ErucaError, match="no filter server"):
                await consumer.pull(queue, 0, tags=ClassFilter(NAME, modules.EVERYTHING))
        status, said = await asyncio.to_thread(server.end)
    finally:
        await asyncio.to_thread(up.end)
    assert status == 0
    assert "this broker does not accept filter servers: set filterServerNums" in said
