"""Our programs around the Go and the Node client: built once, started once a session, asked by one case after another.

The sources are in `go` and `node`; what is built from them, with the client library fetched by name, lives in the
system's cache folder under a name made of what the sources say. Both programs take the same lines, see `Stage`.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.brokers import Cluster
from tests.interop.javapeer import ANSWER_SECONDS_MAX, JavaProcess, JavaProgram, PeerError
from tests.needs import expect_need
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
# Fetching and compiling the library on a slow machine; afterwards it is there.
BUILD_SECONDS_MAX = 900
ARRIVE_SECONDS_MAX = PATIENCE_S

Row = dict[str, Any]


# --- building ---------------------------------------------------------------------------------------------------


def build_go() -> list[str]:
    """Compile the Go program, unless an earlier run did; returns its command."""
    expect_need("go")

    def build(folder: Path) -> None:
        run(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(folder / "interop"), "."], HERE / "go")

    return [str(build_once(HERE / "go", "go", ["*.go", "go.mod", "go.sum"], build) / "interop")]


def install_node() -> list[str]:
    """Install the Node client as locked, unless an earlier run did; returns the command of our program."""
    expect_need("node")

    def build(folder: Path) -> None:
        for name in ("package.json", "package-lock.json", "main.js"):
            shutil.copyfile(HERE / "node" / name, folder / name)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    made = build_once(HERE / "node", "node", ["main.js", "package.json", "package-lock.json"], build)
    return ["node", str(made / "main.js")]


def build_once(sources: Path, name: str, patterns: Sequence[str], build: Callable[[Path], None]) -> Path:
    """A folder that `build` filled, now or in an earlier run from the same sources."""
    digest = hashlib.sha256()
    for source in sorted(path for pattern in patterns for path in sources.glob(pattern)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eruca-interop"
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / f"{name}-{digest.hexdigest()[:16]}"
    with _locked(cache / f".{name}-lock"):
        if not made.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as staging:
                folder = Path(staging) / "made"
                folder.mkdir()
                build(folder)
                folder.rename(made)
    return made


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, so that two test runs do not build into one folder."""
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: list[str], folder: Path) -> None:
    """Run a command that builds something; what it prints is shown when it fails."""
    try:
        done = subprocess.run(  # noqa: PLW1510
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{command[0]}: {error}; `make setup-clients` installs Go and Node") from error
    if done.returncode:
        raise PeerError(f"{' '.join(command[:2])} ended with {done.returncode}:\n{done.stdout[-4000:]}")


# --- running ----------------------------------------------------------------------------------------------------


class ClientProgram(JavaProgram):
    """A running program of ours that uses the Go or the Node client on one cluster."""

    def __init__(self, language: str, command: Sequence[str], home: Path, cluster: Cluster) -> None:
        home.mkdir(parents=True, exist_ok=True)
        # Broadcast consumers keep their offsets below HOME; the Go client tells its log level there.
        settings = [f"HOME={home}", "ROCKETMQ_GO_LOG_LEVEL=warn"]
        JavaProcess.__init__(self, ["env", *settings, *command], home / f"{language}.log", talks=True)
        self._read_to = 0
        self.language = language
        self.cluster = cluster


class Stage:
    """One case: topics and groups with its own names, and whatever it starts is stopped when it ends."""

    def __init__(self, program: ClientProgram, case: str) -> None:
        self.program = program
        self.cluster = program.cluster
        self._prefix = f"{program.language}-{case.removeprefix('test_')}"
        self._names = 0
        self._running: list[str] = []
        self._maker: Sender | None = None

    def ask(self, action: str, /, **fields: Any) -> list[Any]:
        """Ask the program; it gets the cluster's addresses with every line."""
        addresses = {"nameServer": self.cluster.name_server, "broker": self.cluster.broker}
        line = {"do": action, "seconds": ARRIVE_SECONDS_MAX, **addresses, **fields}
        return self.program.ask(line, line["seconds"] + ANSWER_SECONDS_MAX)

    def make_name(self, what: str) -> str:
        """A name that no other case has."""
        self._names += 1
        return f"{self._prefix}-{what}{self._names}"

    def start(self, action: str, **fields: Any) -> str:
        """Start a client; returns the name to ask for it by."""
        name = self.make_name("client")
        self.ask(action, name=name, **fields)
        self._running.append(name)
        return name

    def stop(self, name: str) -> None:
        """Stop a client."""
        self._running.remove(name)
        self.ask("stop", name=name)

    def close(self) -> None:
        """Stop all that still runs."""
        while self._running:
            self.stop(self._running[-1])

    # -- what both programs know -------------------------------------------------------------------------------------

    def start_producer(self, **fields: Any) -> Sender:
        """A producer in its own group."""
        return Sender(self, self.start("startProducer", **{"group": self.make_name("group"), **fields}))

    def start_consumer(self, *topics: str, **fields: Any) -> Receiver:
        """A push consumer; from the first offset and in its own group, unless told otherwise."""
        given = {"group": self.make_name("group"), "expression": "*", **fields}
        return Receiver(self, self.start("startConsumer", topics=list(topics), **given))

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Ask again until something holds; each question is a round trip to the other program."""
        deadline = time.monotonic() + ARRIVE_SECONDS_MAX
        while not holds():
            assert time.monotonic() < deadline, f"still not: {what}"

    def wait_for_bodies(self, consumers: Sequence[Receiver], bodies: Sequence[str]) -> dict[str, list[str]]:
        """Wait until consumers have all of some bodies between them; returns what each has, by its name."""
        rows = self.ask("awaitBodies", names=[consumer.name for consumer in consumers], bodies=list(bodies))
        shares: dict[str, list[str]] = {consumer.name: [] for consumer in consumers}
        for row in rows:
            shares[row["name"]].append(row["body"])
        return shares

    def wait_for_sharing(self, consumers: Sequence[Receiver], topic: str, send: Callable[..., object]) -> None:
        """Send rounds of messages until one is shared by all consumers in equal parts."""
        deadline = time.monotonic() + ARRIVE_SECONDS_MAX
        for number in itertools.count():
            bodies = [f"round {number} message {index}" for index in range(4 * len(consumers))]
            send(*({"topic": topic, "body": body, "queue": index % 4} for index, body in enumerate(bodies)))
            shares = self.wait_for_bodies(consumers, bodies)
            if {len(share) for share in shares.values()} == {4}:
                return
            assert time.monotonic() < deadline, f"not shared after {number} rounds: {shares}"

    def make_topic(self, queues: int = 4, name: str | None = None) -> str:
        """A topic that the name server already tells of."""
        topic = name or self.make_name("topic")
        # The Node client creates topics through a producer.
        through = {}
        if self.program.language == "node":
            self._maker = self._maker or self.start_producer()
            through["name"] = self._maker.name
        self.ask("createTopic", topic=topic, queues=queues, **through)
        return topic


class Sender:
    """A producer in a program."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.name = name

    def send(self, *messages: Row, mode: str = "sync") -> list[Row]:
        """Send messages; returns what the broker answered, nothing for oneway and one row for a batch."""
        return self._stage.ask("send", name=self.name, mode=mode, messages=list(messages))

    def stop(self) -> None:
        """Stop it."""
        self._stage.stop(self.name)


class Receiver:
    """A push consumer in a program."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.name = name

    def wait(self, count: int, seconds: float = ARRIVE_SECONDS_MAX) -> list[Row]:
        """Wait until this many messages have arrived in all; returns them in the order of the listener's calls."""
        return self._stage.ask("await", seconds=seconds, name=self.name, count=count)

    def list(self) -> list[Row]:
        """What has come until now."""
        return self._stage.ask("list", name=self.name)

    def stop(self) -> None:
        """Stop it; its offsets are committed then."""
        self._stage.stop(self.name)


def make_messages(topic: str, count: int, **fields: Any) -> list[Row]:
    """Numbered messages."""
    return [{"topic": topic, "body": f"message {number}", **fields} for number in range(count)]


def list_bodies(rows: Sequence[Row]) -> list[str]:
    """The bodies, sorted."""
    return sorted(row["body"] for row in rows)


def in_order(rows: Sequence[Row], queue: int) -> list[str]:
    """The bodies of one queue, as they came."""
    return [row["body"] for row in rows if row["queue"] == queue]
