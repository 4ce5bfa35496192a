"""Celery and taskiq with real workers, on a cluster of either kind: at least once, whatever happens to a worker."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, pools
from kombu.exceptions import OperationalError
from taskiq import InMemoryBroker
from taskiq.api import run_receiver_task
from taskiq.exceptions import SendTaskError

import eruca.integrations.kombu
from eruca.errors import ClientClosed, InvalidName, MessageIllegal
from eruca.integrations.taskiq import ErucaBroker
from eruca.sync import Consumer
from tests.interop.brokers import Cluster
from tests.interop.javapeer import JavaProcess
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.whole
SECONDS_MAX = PATIENCE_S

# The scheme is not made known by an import here: the setting is enough.
CELERY_APP = """
import os, pathlib, time
from celery import Celery
from celery.exceptions import Reject

app = Celery("work", broker="eruca://@nameserver@")
app.conf.update(
    broker_transport="eruca.integrations.kombu:Transport",
    task_default_queue="@queue@",
    task_acks_late=True,
    worker_redirect_stdouts=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"queue_name_prefix": "prefix."},
)

def say(*words):
    print("said", *words, flush=True)

@app.task(name="hang_once")
def hang_once(mark):
    if not pathlib.Path(mark).exists():
        pathlib.Path(mark).touch()
        say("hanging")
        time.sleep(600)
    say("survived")

@app.task(name="reject", bind=True)
def reject(self, name, requeue):
    say("redelivered" if self.request.delivery_info.get("redelivered") else "first", name)
    if not self.request.delivery_info.get("redelivered"):
        raise Reject("not now", requeue=requeue)

@app.task(name="count")
def count(number):
    time.sleep(0.02)
    say("number", number)

@app.task(name="count_down")
def count_down(number):
    say("down", number, os.getpid())
    if number:
        count_down.delay(number - 1)
"""

TASKIQ_APP = """
import pathlib, time
from eruca import Rebalance
from eruca.integrations.taskiq import ErucaBroker

broker = ErucaBroker("@nameserver@", topic="@queue@", rebalance=Rebalance(interval=0.5))

@broker.task("hang_once")
def hang_once(mark: str) -> None:
    if not pathlib.Path(mark).exists():
        pathlib.Path(mark).touch()
        print("said hanging", flush=True)
        time.sleep(600)
    print("said survived", flush=True)
"""


class Office:
    """Workers, and the application they work for."""

    def __init__(self, home: Path, cluster: Cluster, text: str) -> None:
        self.home = home
        self.queue = f"work-{secrets.token_hex(4)}"
        self._text = text.replace("@nameserver@", cluster.name_server).replace("@queue@", self.queue)
        self._count = 0

    def load(self) -> dict[str, Any]:
        """The application, in this process."""
        namespace: dict[str, Any] = {"__name__": __name__}
        exec(compile(self._text, "app.py", "exec"), namespace)
        return namespace

    def run(self, *command: str) -> JavaProcess:
        """Start a worker; what it prints can be waited for."""
        (self.home / "app.py").write_text(self._text)
        self._count += 1
        return JavaProcess([sys.executable, "-m", *command], self.home / f"worker-{self._count}.log")

    def run_celery(self, *options: str, pool: str = "solo") -> JavaProcess:
        """Start a worker of Celery."""
        return self.run("celery", "--quiet", "-A", "app", "worker", "--pool", pool, "--loglevel", "WARNING", *options)

    def run_taskiq(self) -> JavaProcess:
        """Start a worker of taskiq."""
        return self.run("taskiq", "worker", "app:broker", "--workers", "1", "--log-level", "WARNING")


def wait_for(worker: JavaProcess, said: str) -> None:
    """Wait until a worker has said something."""
    worker.wait_for(lambda line: line == f"said {said}", SECONDS_MAX)


def count_said(workers: list[JavaProcess], begin: str) -> Counter[str]:
    """What all workers printed with this prefix, and how often."""
    return Counter(line for worker in workers for line in worker.lines if line.startswith(f"said {begin}"))


# --- Celery -------------------------------------------------------------------------------------------------------


@pytest.fixture
def office(tmp_path: Path, cluster: Cluster) -> Iterator[Office]:
    """An application of Celery."""
    yield Office(tmp_path, cluster, CELERY_APP)
    pools.reset()  # else the connection of this process outlives the cluster


@pytest.fixture
def connect(cluster: Cluster) -> Callable[..., Connection]:
    """Makes connections of kombu."""

    def connect(url: str = "", **options: Any) -> Connection:
        return Connection(url or f"eruca://{cluster.name_server}", transport_options=options)

    return connect


def test_celery_task_of_a_killed_worker_comes_again(office: Office) -> None:
    mark = office.home / "mark"
    with office.run_celery() as first:
        office.load()["hang_once"].delay(str(mark))
        wait_for(first, "hanging")
        first.end(signal.SIGKILL)
    with office.run_celery() as second:
        wait_for(second, "survived")
        assert second.end() == 0
    assert "said hanging" not in second.lines


def test_celery_clean_restart_does_each_task_once(office: Office) -> None:
    count = office.load()["count"]
    numbers = range(60)
    for number in numbers:
        count.delay(number)
    with office.run_celery("--prefetch-multiplier", "4") as first:
        first.wait_for(lambda line: line.startswith("said number"), SECONDS_MAX)
        assert first.end() == 0
    assert 0 < len(count_said([first], "number")) < len(numbers)
    with office.run_celery() as second:
        for number in set(numbers) - {int(line.split()[-1]) for line in count_said([first], "number")}:
            wait_for(second, f"number {number}")
        assert second.end() == 0
    assert count_said([first, second], "number") == {f"said number {number}": 1 for number in numbers}


def test_celery_rejected_task_comes_again_or_is_a_dead_letter(office: Office, cluster: Cluster) -> None:
    reject = office.load()["reject"]
    with office.run_celery() as worker:
        reject.delay("a", True)
        wait_for(worker, "redelivered a")
        sent = reject.delay("b", False)
        wait_for(worker, "first b")
        dead = f"%DLQ%celery-prefix_{office.queue}"
        with Consumer(
            cluster.name_server, group=f"morgue-{office.queue}", subscribe=dead, start="earliest",
            options=eruca.ClientOptions(route_interval=0.2),
        ) as morgue:  # fmt: skip
            letter = next(iter(morgue))
            assert letter.keys == [sent.id]
        assert worker.end() == 0
    assert count_said([worker], "") == {"said first a": 1, "said redelivered a": 1, "said first b": 1}


def test_celery_prefork_children_send_tasks_too(office: Office) -> None:
    count_down = office.load()["count_down"]
    with office.run_celery("--concurrency", "2", pool="prefork") as worker:
        count_down.delay(4)
        worker.wait_for(lambda line: line.startswith("said down 0 "), SECONDS_MAX)
        assert worker.end() == 0
    found = [re.fullmatch(r"said down (\d) (\d+)", line) for line in worker.lines if line.startswith("said down")]
    assert [match[1] for match in found if match] == list("43210")
    assert worker.pid not in {int(match[2]) for match in found if match}


def test_kombu_what_is_not_acknowledged_comes_again(connect: Callable[..., Connection]) -> None:
    name = f"simple-{secrets.token_hex(4)}"
    with connect() as connection, connection.SimpleQueue(name) as queue:
        for number in range(3):
            queue.put({"number": number})
        first = queue.get(timeout=SECONDS_MAX)
        first.ack()
        second = queue.get(timeout=SECONDS_MAX)
        assert not second.delivery_info.get("redelivered")
    rest = {0, 1, 2} - {first.payload["number"]}
    with connect() as connection, connection.SimpleQueue(name) as queue:
        messages = [queue.get(timeout=SECONDS_MAX) for _ in rest]
        assert {message.payload["number"] for message in messages} == rest
        again = [message.payload for message in messages if message.delivery_info.get("redelivered")]
        assert second.payload in again
        for message in messages:
            message.ack()
        with pytest.raises(queue.Empty):
            queue.get(timeout=1.5)


def test_kombu_names_and_errors(connect: Callable[..., Connection]) -> None:
    with connect(queue_name_prefix="pre.") as connection:
        channel = connection.channel()
        assert channel.find_topic("a.b@c") == "pre_a_b_c"
        with pytest.raises(InvalidName, match="would both be topic"):
            channel.find_topic("a_b.c")
        with pytest.raises(MessageIllegal, match="cannot be purged"):
            channel.queue_purge("a.b@c")
        assert connection.transport.driver_version() == eruca.__version__
        transport = connection.transport
    with pytest.raises(ClientClosed):
        transport.send("a", b"b", [])
    with pytest.raises(OperationalError), connect("eruca://127.0.0.1:1") as nowhere:
        nowhere.ensure_connection(max_retries=1, interval_start=0.1, interval_max=0.1)


# --- taskiq -------------------------------------------------------------------------------------------------------


def test_taskiq_task_of_a_killed_worker_comes_again(tmp_path: Path, cluster: Cluster) -> None:
    office = Office(tmp_path, cluster, TASKIQ_APP)
    app = office.load()

    async def send() -> None:
        await app["broker"].startup()
        await app["hang_once"].kiq(str(tmp_path / "mark"))
        await app["broker"].shutdown()

    asyncio.run(send())
    with office.run_taskiq() as worker:
        wait_for(worker, "hanging")
        for child in Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        # taskiq starts another worker process in the place of the dead one, and that gets the task.
        wait_for(worker, "survived")
        worker.end()
    assert [line for line in worker.lines if line.startswith("said")] == ["said hanging", "said survived"]


async def test_taskiq_results_and_delays(cluster: Cluster) -> None:
    topic = f"results-{secrets.token_hex(4)}"
    broker = ErucaBroker(cluster.name_server, topic=topic).with_result_backend(InMemoryBroker().result_backend)

    @broker.task("double")
    async def double(number: int) -> int:
        return number * 2

    with pytest.raises(SendTaskError) as failure:
        await double.kiq(1)
    assert isinstance(failure.value.__cause__, ClientClosed)
    broker.is_worker_process = True
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        soon = await double.kiq(21)
        later = await double.kicker().with_labels(delay=1).kiq(4)
        assert (await soon.wait_result(timeout=SECONDS_MAX)).return_value == 42
        assert (await later.wait_result(timeout=SECONDS_MAX)).return_value == 8
        with pytest.raises(SendTaskError) as failure:
            await double.kicker().with_labels(delay=7).kiq(4)
        assert isinstance(failure.value.__cause__, MessageIllegal)
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()
