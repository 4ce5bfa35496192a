"""A rolling restart of three members and two name servers under load, as Kubernetes does it, loses nothing.

The processes have the arguments and variables of the chart as Helm renders it, with its accounts. Names of pods are
replaced by loopback addresses, and the folders of the containers by others. Kubernetes waits until a member has been
ready for ten seconds; here the next one goes at once, which is harder.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from eruca import ClientOptions, Consumer, Message, Producer
from eruca.admin import Admin
from tests.clients.stage import poll, wait_until
from tests.figures import note_figures
from tests.needs import needs
from tests.patience import PATIENCE_S
from tests.replication.etcdserver import EtcdServer
from tests.replication.load import TOPIC, Ledger, ProducerLoad, read_number
from tests.replication.segments import compare_logs, find_tail, read_log
from tests.shipping.charts import ETCD, VALUES, Manifest, Pod, list_pods, load, render
from tests.torture.killedbroker import make_environment

# Small files, because all three are on one disk; and messages between two restarts.
OPTIONS = ("mappedFileSizeCommitLog=16777216", "maxHashSlotNum=50000", "maxIndexNum=200000", "diskMaxUsedSpaceRatio=95")
BETWEEN = 200
GRACE_S = 120


class Container:
    """The process of a pod."""

    def __init__(self, pod: Pod, home: Path, replaced: dict[str, str]) -> None:
        self.pod = pod
        self.home = home
        self.address = replaced[pod.host]
        self.log = home / "log"
        folders = {"/data": str(home / "data"), "/etc/eruca": str(home / "etc")}
        self._replaced = {**replaced, "0.0.0.0": self.address, **folders}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def store(self) -> Path:
        """The store directory of a member."""
        return self.home / "data" / "store"

    def _replace(self, text: str) -> str:
        for name, other in self._replaced.items():
            text = text.replace(name, other)
        return text

    def prepare(self) -> None:
        """Write what is mounted."""
        (self.home / "data").mkdir(parents=True)
        for path, text in self.pod.files.items():
            file = Path(self._replace(path))
            file.parent.mkdir(parents=True)
            file.write_text(text)

    async def start(self) -> None:
        """Start it as the image does."""
        command = [sys.executable, "-m", "eruca", *map(self._replace, self.pod.arguments)]
        variables = {name: self._replace(text) for name, text in self.pod.environment.items()}
        with await asyncio.to_thread(self.log.open, "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env={**make_environment(), **variables}, cwd=self.home
            )

    async def read_log(self) -> str:
        """The end of its log."""
        return (await asyncio.to_thread(self.log.read_text))[-3000:]

    async def is_ready(self) -> bool:
        """What the readiness probe finds."""
        assert self._process is not None and self._process.returncode is None, await self.read_log()
        return await asyncio.to_thread(self._probe)

    def _probe(self) -> bool:
        path = self.pod.container["readinessProbe"]["httpGet"]["path"]
        port = self.pod.environment["ERUCA_METRICS_PORT"]
        try:
            with urlopen(f"http://{self.address}:{port}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, TimeoutError, ConnectionError):
            return False

    async def wait_until_ready(self) -> float:
        """Wait for it; returns how long it took."""
        began = time.monotonic()
        await poll(self.is_ready, bool)
        return time.monotonic() - began

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Stop it as Kubernetes does; returns how long it took. It has to end cleanly."""
        process, self._process = self._process, None
        if process is None:
            return 0.0
        began = time.monotonic()
        process.send_signal(number)
        async with asyncio.timeout(GRACE_S):
            status = await process.wait()
        assert status == (0 if number is signal.SIGTERM else -number), await self.read_log()
        return time.monotonic() - began


@asynccontextmanager
async def run_pods(folder: Path, manifests: Sequence[Manifest], etcd: str) -> AsyncIterator[list[Container]]:
    """Run all pods of the chart: name servers first."""
    pods = [*list_pods(manifests, "nameserver"), *list_pods(manifests, "broker")]
    # Of this run alone: ports are those of the chart.
    network = f"127.{random.randrange(2, 250)}.{random.randrange(1, 250)}"
    replaced = {pod.host: f"{network}.{number}" for number, pod in enumerate(pods, 1)} | {ETCD: etcd}
    containers = [Container(pod, folder / pod.name, replaced) for pod in pods]
    async with AsyncExitStack() as stack:
        for container in containers:
            await asyncio.to_thread(container.prepare)
            await container.start()
            stack.push_async_callback(container.stop, signal.SIGKILL)
        for container in containers:
            await container.wait_until_ready()
        yield containers


def list_tails(members: Sequence[Container]) -> set[int]:
    """Where the logs of members end."""
    return {find_tail(each.store) for each in members}


@pytest.mark.whole
@needs("go", "etcd")
async def test_a_rolling_restart_under_load_loses_nothing(tmp_path: Path) -> None:
    options = [f"broker.options.{option}" for option in OPTIONS]
    manifests = await asyncio.to_thread(lambda: load(render(*VALUES["three"], *options)))
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(EtcdServer(tmp_path / "etcd"))
        containers = await stack.enter_async_context(run_pods(tmp_path, manifests, etcd.endpoint))
        servers = [each for each in containers if "nameserver" in each.pod.name]
        members = [each for each in containers if "broker" in each.pod.name]
        names = ";".join(f"{each.address}:9876" for each in servers)
        (secret,) = [each for each in manifests if each["kind"] == "Secret"]
        account = yaml.safe_load(secret["stringData"]["tools.yml"])
        client = ClientOptions(access_key=account["accessKey"], secret_key=account["secretKey"], route_interval=1)

        async with Admin(names, client) as admin:
            await admin.topics.create(TOPIC, queues=8)
        ledger, consumed = Ledger(), Counter[int]()
        producer = await stack.enter_async_context(Producer(names, group="feeder", options=client))
        consumer = Consumer(names, group="taker", start="earliest", options=client)

        @consumer.handler(TOPIC)
        async def take(message: Message) -> None:
            consumed[read_number(message.body)] += 1

        await stack.enter_async_context(consumer)
        sending = ProducerLoad(producer, ledger)
        stack.push_async_callback(sending.stop)

        async def wait_for_more() -> None:
            wanted = ledger.acknowledged + BETWEEN
            await wait_until(lambda: ledger.acknowledged >= wanted, "more is acknowledged", PATIENCE_S)

        moments, stops, starts = [], [], []
        # The order of Kubernetes: the highest number first, and each only when the one before is ready.
        for container in [*reversed(members), *reversed(servers)]:
            await wait_for_more()
            moments.append(time.monotonic())
            stops.append(await container.stop())
            await container.start()
            starts.append(await container.wait_until_ready())
        await wait_for_more()
        await sending.stop()
        wanted = {attempt.number for attempt in ledger.list_acknowledged()}
        await wait_until(lambda: wanted <= consumed.keys(), "all consumed", PATIENCE_S)
        pauses = ledger.find_pauses(moments)
        await consumer.close()
        await producer.close()
        async with Admin(names, client) as admin:
            states = {each: await admin.cluster.state(f"{each.address}:10911") for each in members}
        (master,) = [each for each, state in states.items() if state.role == "MASTER"]
        await poll(partial(asyncio.to_thread, list_tails, members), lambda tails: len(tails) == 1)
        # Slaves first: a master that stops would be replaced.
        for member in sorted(members, key=lambda each: each is master):
            await member.stop()
    records = await asyncio.to_thread(lambda: list(read_log(master.store)))
    assert ledger.list_faults(records) == []
    comparisons = [await asyncio.to_thread(compare_logs, master.store, each.store) for each in members]
    assert [each.describe() for each in comparisons if not each.is_same] == []
    note_figures(
        f"rolling restart of 3 members and 2 name servers: {ledger.summarise()}; 0 lost;"
        f" consumers got {len(consumed):,},"
        f" {consumed.total() - len(consumed):,} more than once; longest pause of producers {max(pauses):.1f} s;"
        f" stops up to {max(stops):.1f} s, ready after up to {max(starts):.1f} s"
    )
