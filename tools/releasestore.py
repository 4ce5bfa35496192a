"""Keep a store that this version has written, for the versions after it: `make release-store`.

The archive has the data directory of `eruca up` after a clean stop, and `manifest.json`: the version, the commit, every
message, what the group has consumed, and what is pending. `tests/shipping/test_upgrades.py` opens it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from eruca import Decision, Retry
from eruca.sync import Consumer, Producer, PullConsumer, TransactionalProducer
from tools.project import REPOSITORY, read_version

RELEASES: Final = REPOSITORY / "tests" / "golden" / "data" / "releases"
OURS: Final = (sys.executable, "-m", "eruca")
# For this version; the first releases have no console.
NO_CONSOLE: Final = "--console-listen-port=-1"
# Small files, so that the log, the queues and the index have several of each.
_SIZES: Final = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "diskMaxUsedSpaceRatio": 95,
}
TOPIC, DEAD, PENDING, GROUP = "orders", "mails", "later", "billing"
_MESSAGES: Final = 400
_START_SECONDS_MAX: Final = 120
_STOP_SECONDS_MAX: Final = 120

Stored = tuple[str, int, int, str, str]


@contextmanager
def run_up(
    data: Path, command: Sequence[str] = OURS, environment: Mapping[str, str] | None = None, *flags: str
) -> Iterator[dict[str, Any]]:
    """Run `eruca up` on a directory; yields the facts it prints. It has to stop cleanly."""
    ports = ["--nameserver-port=0", "--listen-port=0", "--metrics-port=-1"]
    started = [*command, "up", "--output=json", f"--data={data}", *ports, *flags]
    process = subprocess.Popen(started, stdout=subprocess.PIPE, text=True, env=environment, cwd=data.parent)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"`{' '.join(started)}` did not start"
        yield {**json.loads(line), "pid": process.pid}
        process.send_signal(signal.SIGTERM)
        status = process.wait(_STOP_SECONDS_MAX)
        assert status == 0, f"`eruca up` ended with status {status}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def make_body(number: int) -> bytes:
    """Bodies of every size up to a kilobyte."""
    return f"{number:06d}".encode() * (1 + number % 170)


def send_orders(nameserver: str, first: int, count: int = _MESSAGES) -> None:
    """Send numbered messages with tags, keys and properties."""
    with Producer(nameserver, group="shop") as producer:
        for number in range(first, first + count):
            producer.send(
                TOPIC,
                make_body(number),
                tags="eu" if number % 2 else "us",
                keys=[f"order-{number}"],
                properties={"number": str(number)},
            )


def write_all(nameserver: str) -> None:
    """Write something of everything that a store keeps."""
    send_orders(nameserver, 0)
    with Consumer(nameserver, group=GROUP, subscribe=TOPIC, start="earliest") as consumer:
        for taken, message in enumerate(consumer, 1):
            message.ack()
            if taken == _MESSAGES // 2:
                break
    _bury(nameserver)
    with Producer(nameserver, group="shop") as producer:
        producer.send(PENDING, b"in 39 days", timer=timedelta(days=39), keys=["pending-1"])
    with TransactionalProducer(nameserver, group="undecided", check=_stay_undecided) as producer:
        producer.send_transaction(PENDING, b"half", local=_stay_undecided, keys=["half-1"])


def _stay_undecided(_about: object) -> Decision:
    return Decision.UNKNOWN


def _bury(nameserver: str) -> None:
    with Producer(nameserver, group="shop") as producer:
        producer.send(DEAD, b"to ada", keys=["dead-1"])
    consumer = Consumer(nameserver, group="mailer", subscribe=DEAD, start="earliest", retry=Retry(max_deliveries=1))
    with consumer:
        for message in consumer:
            message.bury()
            break


def read_all(nameserver: str, *topics: str) -> list[Stored]:
    """Return all messages: topic, queue, offset, key, and the digest of the body."""
    found: list[Stored] = []
    with PullConsumer(nameserver, group="reader", auto_commit=False) as puller:
        for topic in topics:
            for queue in sorted(puller.list_queues(topic), key=lambda queue: queue.queue_id):
                offset, end = puller.begin_offset(queue), puller.end_offset(queue)
                while offset < end:
                    result = puller.pull(queue, offset)
                    for message in result.messages:
                        digest = hashlib.sha256(message.body).hexdigest()[:16]
                        found.append((topic, queue.queue_id, message.offset, message.keys[0], digest))
                    offset = result.next_offset
    return sorted(found)


def make_archive(path: Path, version: str) -> dict[str, Any]:
    """Write the archive, and return its manifest."""
    with tempfile.TemporaryDirectory(prefix="eruca-release-") as directory:
        data = Path(directory) / "data"
        flags = [f"--option={key}={value}" for key, value in _SIZES.items()]
        with run_up(data, OURS, None, NO_CONSOLE, *flags) as facts:
            write_all(facts["nameserver"])
            messages = read_all(facts["nameserver"], TOPIC, DEAD)
        commit = subprocess.run(
            ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        manifest = {"version": version, "commit": commit, "consumed": _MESSAGES // 2, "messages": messages}
        (Path(directory) / "manifest.json").write_text(json.dumps(manifest, indent=0) + "\n", encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:gz", compresslevel=9) as archive:
            for name in ("manifest.json", "data"):
                archive.add(Path(directory) / name, name, filter=_forget_owner)
    return manifest


def _forget_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


@click.command()
def main() -> None:
    """Write the archive of this version."""
    changed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "status", "--porcelain", "src"], capture_output=True, check=True
    )
    if changed.stdout:
        raise click.ClickException("src has changes that are not committed: the archive names the commit that wrote it")
    version = read_version()
    path = RELEASES / f"{version}.tar.gz"
    manifest = make_archive(path, version)
    click.echo(f"{path.relative_to(REPOSITORY)}: {len(manifest['messages'])} messages, {path.stat().st_size} bytes")


if __name__ == "__main__":
    os.environ.pop("NAMESRV_ADDR", None)
    main()
