"""The pytest plugin as its users have it: found automatically, in a separate run, with every way to run async tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from eruca.errors import ConfigError, ErucaError
from eruca.testing import EmbeddedBroker
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

SECONDS_MAX = PATIENCE_S

ASYNC_TESTS = """
import asyncio
import pytest

pytestmark = pytest.mark.{mark}


async def test_for(eruca_producer, eruca_consumer, eruca_topic):
    await eruca_producer.send(eruca_topic, b"hello")
    async with eruca_consumer(subscribe=eruca_topic) as consumer:
        async for message in consumer:
            assert message.body == b"hello"
            await message.ack()
            break


async def test_retries_come_at_once(eruca_producer, eruca_consumer, eruca_topic):
    seen = asyncio.Queue()
    consumer = eruca_consumer()

    @consumer.handler(eruca_topic)
    async def work(message):
        seen.put_nowait(message.delivery)
        if message.delivery < 3:
            raise RuntimeError("not yet")

    await consumer.start()  # and the fixture closes it
    await eruca_producer.send(eruca_topic, b"hello")
    assert [await asyncio.wait_for(seen.get(), 30) for _ in range(3)] == [1, 2, 3]
"""

PLAIN_TESTS = """
import time

import pytest

from eruca.testing import EmbeddedBroker

seen = []


def test_for(eruca_sync_producer, eruca_sync_consumer, eruca_topic):
    eruca_sync_producer.send(eruca_topic, b"hello")
    with eruca_sync_consumer(subscribe=eruca_topic) as consumer:
        for message in consumer:
            assert message.body == b"hello"
            message.ack()
            break


@pytest.mark.parametrize("case", ["a/b", "c d"])
def test_names_are_its_own(eruca_broker, eruca_topic, eruca_group, case):
    seen.append((eruca_broker.nameserver, eruca_topic, eruca_group))
    assert "test_names_are_its_own" in eruca_topic


def test_one_broker_for_all():
    (first, topic, group), (second, other_topic, other_group) = seen
    assert first == second
    assert len({topic, other_topic, group, other_group}) == 4


def test_start_is_quick(capsys):
    with EmbeddedBroker():  # what is imported only once
        pass
    begun = time.perf_counter()
    with EmbeddedBroker() as broker:
        started = time.perf_counter()
        assert broker.nameserver and broker.address
    with capsys.disabled():
        print(f"start {started - begun:.3f} s, stop {time.perf_counter() - started:.3f} s")
"""

OPTIONS_TESTS = """
import asyncio

import pytest

from eruca import Producer
from eruca.sync import Consumer
from eruca.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def eruca_broker_options():
    return {"name": "mine", "topic_queue_nums": 3}


def test_options_are_taken(eruca_broker, eruca_sync_producer):
    assert {queue.broker_name for queue in eruca_sync_producer.list_queues("new")} == {"mine"}
    assert len(eruca_sync_producer.list_queues("new")) == 3
    eruca_broker.create_topic("wide", queues=9)
    assert len(eruca_sync_producer.list_queues("wide")) == 9


def test_a_directory_is_kept(tmp_path):
    async def send():
        async with EmbeddedBroker(tmp_path) as broker, Producer(broker.nameserver, group="shop") as producer:
            await producer.send("orders", b"one melon")

    asyncio.run(send())
    broker = EmbeddedBroker(tmp_path)
    for _ in range(2):
        broker.start()
        broker.start()  # does nothing
        with Consumer(broker.nameserver, group="billing", subscribe="orders", start="earliest") as consumer:
            assert next(iter(consumer)).body == b"one melon"
        broker.stop()
        broker.stop()
"""


def run_pytest(directory: Path, text: str, *arguments: str, status: int = 0) -> str:
    """Run a file of tests with the plugin in a separate process; returns what it prints. All must pass by default."""
    (directory / "test_it.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, "-W", "error", "-m", "pytest", "-W", "error", "--durations=3", *arguments]
    without = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NAMESRV_"))}
    run = subprocess.run(
        command, cwd=directory, env=without, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    print(run.stdout)
    assert run.returncode == status, run.stdout + run.stderr
    return run.stdout


def test_it_is_found_by_itself() -> None:
    found = entry_points(group="pytest11", name="eruca")
    assert [entry.value for entry in found] == ["eruca._testing.plugin"], "install the package again: make setup"


@pytest.mark.parametrize(
    ("mark", "arguments"),
    [
        ("asyncio", ["-o", "asyncio_mode=strict"]),
        ("asyncio", ["-o", "asyncio_mode=auto"]),
        ("anyio", ["-o", "asyncio_mode=strict"]),
        ("anyio", ["-p", "no:asyncio", "-W", "ignore::pytest.PytestConfigWarning"]),
    ],
)
def test_async_tests(tmp_path: Path, mark: str, arguments: list[str]) -> None:
    conftest = 'import pytest\n\n\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"\n'
    if mark == "anyio":
        (tmp_path / "conftest.py").write_text(conftest)
    assert "2 passed" in run_pytest(tmp_path, ASYNC_TESTS.replace("{mark}", mark), *arguments)


def test_async_fixtures_say_what_they_need(tmp_path: Path) -> None:
    text = "def test_it(eruca_producer): ..."
    said = run_pytest(tmp_path, text, "-p", "no:asyncio", "-W", "ignore::pytest.PytestConfigWarning", status=1)
    assert "eruca_producer is for async tests: install pytest-asyncio" in said


def test_plain_tests(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, PLAIN_TESTS)
    assert "5 passed" in said
    assert re.search(r"start \d+\.\d{3} s, stop \d+\.\d{3} s", said)


def test_options(tmp_path: Path) -> None:
    assert "2 passed" in run_pytest(tmp_path, OPTIONS_TESTS)


def test_the_guide_is_right(tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs" / "guide" / "testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    tests = "\n\n".join(block for block in blocks if "def test_" in block or "EmbeddedBroker" in block)
    assert f"{tests.count('def test_')} passed" in run_pytest(tmp_path, tests, "-o", "asyncio_mode=auto")


def test_a_run_without_its_fixtures_pays_nothing() -> None:
    program = "import sys, eruca._testing.plugin; print(*[name for name in sys.modules if name.startswith('eruca')])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"eruca", "eruca._testing", "eruca._testing.plugin"}


def test_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        EmbeddedBroker(nonsense=1).start()


def test_topic_needs_a_started_broker() -> None:
    with pytest.raises(ErucaError, match="not started"):
        EmbeddedBroker().create_topic("orders")
