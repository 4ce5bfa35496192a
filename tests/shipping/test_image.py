"""The image: built from the Containerfile, run with a read-only root as another user, stopped under load."""

from __future__ import annotations

import asyncio
import os
import random
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

from eruca import Producer, PullConsumer
from eruca._net.certificates import write_self_signed
from tests.clients.stage import poll, wait_until
from tests.figures import note_figures
from tests.interop.javapeer import find_broker_port, find_ports
from tests.needs import needs
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.replication.load import TOPIC, Ledger, ProducerLoad, read_number
from tests.shipping.images import IMAGE, LIMITS, Store, pass_pip_on, remove
from tools.project import read_version

CONTAINERFILE = REPOSITORY / "deploy" / "image" / "Containerfile"
# Neither root nor the user of the image.
USER = 12345
BEFORE_STOP = 1000


def test_what_the_build_copies_is_in_its_context() -> None:
    text = CONTAINERFILE.read_text(encoding="utf-8")
    kept = set(re.findall(r"^!(\S+)$", (REPOSITORY / ".containerignore").read_text(), re.MULTILINE))
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert copied
    for word in copied:
        assert (REPOSITORY / word).exists() and word.partition("/")[0] in kept, word


class Ready(BaseHTTPRequestHandler):
    """Answers the path that the health check asks."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Starting(Ready):
    status = 503


@pytest.mark.parametrize(
    ("answers", "is_encrypted", "status"),
    [(Ready, False, 0), (Ready, True, 0), (Starting, False, 1), (Starting, True, 1)],
)
def test_health_is_asked_with_and_without_tls(
    answers: type[Ready], is_encrypted: bool, status: int, tmp_path: Path
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        if is_encrypted:
            certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
            write_self_signed(certificate, key, ["elsewhere"])
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert check_health(server.server_port) == status
        finally:
            server.shutdown()
            thread.join()
    assert check_health(server.server_port) == 1


def check_health(port: int) -> int:
    """Run the health check of the image; returns its exit status."""
    command = [sys.executable, str(CONTAINERFILE.parent / "healthy.py")]
    environment = {**os.environ, "ERUCA_METRICS_PORT": str(port)}
    return subprocess.run(command, env=environment, timeout=PATIENCE_S, check=False).returncode


def test_the_image_runs_that_check() -> None:
    text = CONTAINERFILE.read_text(encoding="utf-8")
    (target,) = re.findall(r"^COPY deploy/image/healthy\.py (\S+)$", text, re.MULTILINE)
    assert f'CMD ["python3", "{target}"]' in text


def test_how_pip_finds_packages_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "60")
    mounts = pass_pip_on(tmp_path)
    assert mounts == {str(tmp_path / "ca.pem"): "/run/pip/pip_cert", str(tmp_path / "pip.conf"): "/etc/pip.conf"}
    assert (tmp_path / "pip.conf").read_text() == "[global]\ncert = /run/pip/pip_cert\ndefault-timeout = 60\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The built image."""
    folder = tmp_path_factory.mktemp("containers")
    store = Store(folder)
    try:
        store.build_base()
        store.build(tmp_path_factory.mktemp("build"))
        yield store
    finally:
        remove(folder)


@pytest.mark.whole
@needs("containers")
def test_what_is_in_the_image(store: Store) -> None:
    shown = store.podman("run", "--rm", *LIMITS, "--network=none", IMAGE, "--version")
    assert shown.startswith(f"eruca, version {read_version()} (Python 3.") and shown.endswith(", compiled)")
    listed = store.podman(
        *("run", "--rm", *LIMITS, "--network=none", "--entrypoint=sh", IMAGE),
        *("-c", "id -u; command -v gcc cc pip; find /opt/eruca -name '*.c'; true"),
    )
    assert listed == "10001"


@pytest.mark.whole
@needs("containers")
def test_it_refuses_to_be_open_to_everyone(store: Store) -> None:
    with pytest.raises(AssertionError, match="--insecure"):
        store.podman("run", "--rm", *LIMITS, "--network=none", "--tmpfs=/data", IMAGE)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that belongs to the user of the container; it can be reached through those above."""
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, USER, USER)
    for folder in [tmp_path, *tmp_path.parents][:3]:
        folder.chmod(0o755)
    return data


@asynccontextmanager
async def run_server(store: Store, data: Path, ports: tuple[int, int, int]) -> AsyncIterator[str]:
    """Run name server and broker in a container with a read-only root, as a user that the image does not know."""
    names, listen, metrics = ports
    arguments = [
        *("--network=host", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all"),
        *("--security-opt=no-new-privileges", f"--user={USER}:{USER}", f"--volume={data}:/data"),
        *("--env=ERUCA_BROKER_IP1=localhost", f"--env=ERUCA_METRICS_PORT={metrics}", IMAGE),
        *("up", "--data=/data", "--host=127.0.0.1", f"--nameserver-port={names}", f"--listen-port={listen}"),
        *("--option=diskMaxUsedSpaceRatio=95", "--log-json"),
    ]
    name = f"eruca-{random.randrange(10**9)}"
    running = store.run(name, *arguments)
    await asyncio.to_thread(running.__enter__)
    try:
        await poll(partial(asyncio.to_thread, is_ready, metrics), bool)
        yield name
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


def is_ready(port: int) -> bool:
    """Ask the path that the health check asks."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.whole
@needs("containers")
async def test_it_is_stopped_under_load_and_loses_nothing(store: Store, data: Path) -> None:
    ports = (find_ports(), find_broker_port(), find_ports())
    ledger = Ledger()
    async with run_server(store, data, ports) as name:
        await asyncio.to_thread(store.podman, "healthcheck", "run", name)
        async with Producer(f"127.0.0.1:{ports[0]}", group="feeder", timeout=1, retries=0) as producer:
            sending = ProducerLoad(producer, ledger)
            await wait_until(lambda: ledger.acknowledged >= BEFORE_STOP, "much is acknowledged", PATIENCE_S)
            await asyncio.to_thread(store.podman, "stop", "--time=120", name)
            await sending.stop()
        state = await asyncio.to_thread(store.read_state, name)
        assert (state["Status"], state["ExitCode"]) == ("exited", 0)
    assert await asyncio.to_thread(list_owners, data) == {USER}
    async with run_server(store, data, ports):
        found = await read_numbers(f"127.0.0.1:{ports[0]}")
    acknowledged = {attempt.number for attempt in ledger.list_acknowledged()}
    assert acknowledged - found == set()
    note_figures(f"container stopped under load: {ledger.summarise()}; 0 of {len(acknowledged):,} lost")


def list_owners(folder: Path) -> set[int]:
    """Whose the files in a folder are."""
    return {path.stat().st_uid for path in folder.rglob("*")}


async def read_numbers(nameserver: str) -> set[int]:
    """Read all messages."""
    found = set()
    async with PullConsumer(nameserver, group="reader", auto_commit=False) as puller:
        for queue in await puller.list_queues(TOPIC):
            offset, end = await puller.begin_offset(queue), await puller.end_offset(queue)
            while offset < end:
                result = await puller.pull(queue, offset)
                found |= {read_number(message.body) for message in result.messages}
                offset = result.next_offset
    return found
