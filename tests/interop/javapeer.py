"""The official Java broker, name server and client, started from a test on loopback ports.

`prepare_peer` fetches the jars once (the peer's own `setup.sh`, Maven by package name) and compiles the programs under
`java/src` against them. Processes are ended by the process that started them, and whatever they print is kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.needs import expect_need
from tests.paths import PEER
from tests.patience import PATIENCE_S

SOURCES = Path(__file__).parent / "java" / "src"
LOGGING = Path(__file__).parent / "java" / "conf" / "logback.xml"
VERSION = "4.9.7"
LOOPBACK = "127.0.0.1"

# Fetching the jars may take a slow network this long; everything else has its answer in seconds.
SETUP_SECONDS_MAX = 900
START_SECONDS_MAX = PATIENCE_S
STOP_SECONDS_MAX = PATIENCE_S
ANSWER_SECONDS_MAX = PATIENCE_S

# What the broker reaches by reflection on Java 17, and flags that make a short life short.
_JVM_FLAGS = [
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.misc", "jdk.internal.ref")
    ),
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    # Hardly anybody speaks TLS to Java's servers, and each would make keys for it at its start.
    "-Dtls.server.mode=disabled",
    "-Dfile.encoding=UTF-8",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
]
# Below the range the kernel gives to outgoing connections, so that none of those takes a port we looked at.
_PORTS = range(20_000, 32_000)
# Those found last: the caller may not have bound them yet.
_PORTS_KEPT = 500
# By port: what says to other test runs that it is taken, though nobody listens there yet.
_PORTS_FOUND: dict[int, socket.socket] = {}
# How a line of an answer begins that is not its last.
_ROW = '{"row"'


class PeerError(Exception):
    """The Java side could not be set up, started, stopped or asked; the text ends with what it printed last."""


# --- the jars and our programs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """The official jars, and our programs compiled against them."""

    jars: Path
    classes: Path

    def command(
        self, main: str, *arguments: str, home: Path, heap: str = "256m", system: Mapping[str, object] | None = None
    ) -> list[str]:
        """The command line that runs a main class with all its files below `home`; `system` are system properties."""
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("broker", "namesrv", "tools"):
            shutil.copyfile(LOGGING, conf / f"logback_{name}.xml")
        return [
            "java",
            "-Xms64m",
            f"-Xmx{heap}",
            *_JVM_FLAGS,
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            f"-Drocketmq.client.logRoot={home / 'client'}",
            "-Drocketmq.client.logLevel=WARN",
            *(f"-D{key}={value}" for key, value in (system or {}).items()),
            "-cp",
            f"{self.classes}:{self.jars}/*",
            main,
            *arguments,
        ]


def prepare_peer() -> Peer:
    """Fetch the jars and compile our programs, unless an earlier run did."""
    expect_need("java")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    work = Path(os.environ.get("PEER_WORK") or cache / "rocketmq-peer")
    work.mkdir(parents=True, exist_ok=True)
    jars = work / "lib4"
    with _locked(work / ".eruca-setup"):
        if not (jars / f"rocketmq-broker-{VERSION}.jar").is_file():
            _run([str(PEER / "setup.sh")], env=os.environ | {"PEER_WORK": str(work), "V": "4"})
        return Peer(jars, _compile_programs(jars, work / "eruca-interop"))


def _compile_programs(jars: Path, folder: Path) -> Path:
    """Compile the sources into a folder named after what they say, so that nothing is compiled twice."""
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(VERSION.encode())
    for source in sources:
        digest.update(source.read_bytes())
    classes = folder / digest.hexdigest()[:16]
    if classes.is_dir():
        return classes
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as staging:
        made = Path(staging) / "classes"
        _run(["javac", "-nowarn", "-Xlint:-deprecation", "-cp", f"{jars}/*", "-d", str(made), *map(str, sources)])
        made.rename(classes)
    return classes


def _run(command: list[str], env: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(  # noqa: PLW1510
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SETUP_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{command[0]}: {error}; `make setup-java` installs Java and Maven") from error
    if done.returncode:
        raise PeerError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, so that two test runs do not fetch into one folder."""
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_ports(*steps: int) -> int:
    """A free port whose neighbours at these distances are free too."""
    start = int.from_bytes(os.urandom(4), "big")
    for number in range(len(_PORTS)):
        port = _PORTS[(start + number * 7) % len(_PORTS)]
        wanted = [port + step for step in (0, *steps)]
        if any(each in _PORTS_FOUND for each in wanted):
            continue
        with ExitStack() as claims:
            try:
                claimed = {each: claims.enter_context(_claim_port(each)) for each in wanted}
                with ExitStack() as stack:
                    for each in wanted:
                        stack.enter_context(socket.socket()).bind(("0.0.0.0", each))
            except OSError:
                continue
            claims.pop_all()
        _PORTS_FOUND.update(claimed)
        for each in list(_PORTS_FOUND)[:-_PORTS_KEPT]:
            _PORTS_FOUND.pop(each).close()
        return port
    raise PeerError("no free ports")


def _claim_port(port: int) -> socket.socket:
    """Take a port before other test runs that look for one. Raises OSError when one of them has it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0eruca-tests-port-{port}")  # a name that is not a file, and gone with the process
    except OSError:
        claim.close()
        raise
    return claim


# --- processes --------------------------------------------------------------------------------------------------


class JavaProcess:
    """A Java process of ours; every line it prints goes to a file and wakes the task that waits for it."""

    def __init__(self, command: Sequence[str], log: Path, *, talks: bool = False) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.lines: list[str] = []
        # Those printed before it was told to end; a process that is ending complains about itself.
        self.lines_before_end: int | None = None
        self._printed = threading.Condition()
        self._ended = False
        self._errors = open(log.with_suffix(".err"), "ab") if talks else None  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors if talks else subprocess.STDOUT,
            cwd=log.parent,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with open(self.log, "ab") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                with self._printed:
                    self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                    self._printed.notify_all()
        with self._printed:
            self._ended = True
            self._printed.notify_all()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_for(self, wanted: Callable[[str], bool], seconds: float, *, start: int = 0) -> int:
        """Wait for a line; returns its number. A process that ends or is silent for too long is an error."""
        deadline = time.monotonic() + seconds
        with self._printed:
            while True:
                while start < len(self.lines):
                    if wanted(self.lines[start]):
                        return start
                    start += 1
                rest = deadline - time.monotonic()
                if self._ended or rest <= 0:
                    raise self.fail("ended too early" if self._ended else f"said nothing of it in {seconds} s")
                self._printed.wait(rest)

    def wait_until_ready(self) -> None:
        """Wait until a server says that it is up; one that does not come up is not left behind."""
        try:
            self.wait_for(lambda line: "boot success" in line, START_SECONDS_MAX)
        except PeerError:
            self.end(signal.SIGKILL)
            raise

    def fail(self, what: str) -> PeerError:
        """An error that shows the last lines."""
        errors = self.log.with_suffix(".err")
        more = errors.read_text(encoding="utf-8", errors="replace").splitlines() if errors.exists() else []
        said = [line[:400] for line in self.lines if not line.startswith(_ROW)]
        tail = "\n".join((said + more)[-30:])
        return PeerError(f"{self.log.stem} (pid {self.pid}) {what}; it printed last:\n{tail}")

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit status. Safe to call again."""
        if self._process.poll() is None:
            self.lines_before_end = len(self.lines)
            self._process.send_signal(with_signal)
        return self.wait()

    def wait(self, seconds: float = STOP_SECONDS_MAX) -> int:
        """Wait for the process to end on its own; one that does not is killed and reported."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise self.fail(f"did not end in {seconds} s and was killed") from None
        finally:
            self._reader.join()
            for stream in (self._process.stdin, self._process.stdout, self._errors):
                if stream is not None:
                    stream.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGKILL)


class JavaNameServer(JavaProcess):
    """The official name server."""

    def __init__(self, peer: Peer, home: Path, *, system: Mapping[str, object] | None = None) -> None:
        self.port = find_ports()
        home.mkdir(parents=True, exist_ok=True)
        config = home / "namesrv.properties"
        settings = {"listenPort": self.port, "kvConfigPath": home / "kv.json", "configStorePath": config}
        _write_properties(config, settings)
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        command = peer.command(main, "-c", str(config), home=home, system=system)
        super().__init__(command, home / "namesrv.log")
        self.wait_until_ready()

    @property
    def address(self) -> str:
        """Where clients and brokers find it."""
        return f"{LOOPBACK}:{self.port}"


class JavaBroker(JavaProcess):
    """The official broker on a store directory. It is ready, and known to its name server, when this returns."""

    # Said about its own stores too: where the log ends, when the queues end there, when one ends with its file, and
    # when an index file is full.
    HARMLESS = (
        re.compile(r"found a illegal magic code 0x0$"),
        re.compile(r"maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\(\1\), truncate dirty logic files$"),
        re.compile(r"Offset not matched\. Request offset: (\d+), firstOffset: \d+, lastOffset: \1,"),
        re.compile(r"Over index file capacity: index count = (\d+); index max num = \1$"),
        re.compile(r"Index file \[.*\] is full, trying to create another one$"),
        # The machine was busy. Ten milliseconds for a new file are enough for one of them.
        re.compile(
            r"\[NOTIFYME\]|(Flush data to disk|Commit data to file) costs|create mappedFile spent time\(ms\)"
            r"|not in lock elapsed time\(ms\)"
        ),
    )

    def __init__(
        self,
        peer: Peer,
        name_server: str,
        store: Path,
        *,
        name: str,
        home: Path,
        port: int | None = None,
        properties: Mapping[str, object] | None = None,
        wait: bool = True,
        heap: str = "512m",
        system: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.name_server = name_server
        self.store = store
        self.port = port or find_broker_port()
        home.mkdir(parents=True, exist_ok=True)
        config = home / "broker.properties"
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "namesrvAddr": name_server,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            # No file goes away by itself, however full the disk of this machine is.
            "fileReservedTime": 999_999,
            "diskMaxUsedSpaceRatio": 95,
            **(properties or {}),
        }
        _write_properties(config, settings)
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = peer.command(main, "-c", str(config), home=home, heap=heap, system=system)
        super().__init__(command, home / "broker.log")
        if wait:
            self.wait_until_ready()

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{LOOPBACK}:{self.port}"

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit status. Safe to call again.

        Each of its two listeners ends as soon as a connection ends, otherwise within three seconds: so each gets some,
        one for each of its threads and more.
        """
        with ExitStack() as stack:
            for port in (self.port, self.port - 2) * 6 if with_signal is signal.SIGTERM else ():
                with suppress(OSError):
                    stack.enter_context(socket.create_connection((LOOPBACK, port), timeout=1))
            return super().end(with_signal)

    def list_complaints(self, allow: Sequence[str] = ()) -> list[str]:
        """Errors, and warnings of its store, up to when it was told to end; without harmless and expected ones."""
        allowed = [*self.HARMLESS, *(re.compile(pattern) for pattern in allow)]
        return [
            line
            for line in self.lines[: self.lines_before_end]
            if re.search(r" ERROR |WARN RocketmqStore|Exception", line)
            and not any(pattern.search(line) for pattern in allowed)
        ]


def find_broker_port() -> int:
    """A free port for a broker, which also takes the ones for its fast listener (-2) and its replicas (+1)."""
    return find_ports(-2, 1)


def _write_properties(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")


# --- programs that answer ---------------------------------------------------------------------------------------


class JavaProgram(JavaProcess):
    """A program of ours under `java/src`: takes a JSON line, answers with rows and then `done` or `error`."""

    def __init__(
        self,
        peer: Peer,
        main: str,
        home: Path,
        *arguments: str,
        heap: str = "256m",
        system: Mapping[str, object] | None = None,
    ) -> None:
        command = peer.command(main, *arguments, home=home, heap=heap, system=system)
        super().__init__(command, home / f"{main.rpartition('.')[2]}.log", talks=True)
        self._read_to = 0

    def ask(self, request: Mapping[str, Any], seconds: float = ANSWER_SECONDS_MAX) -> list[Any]:
        """Send one request and give the rows of its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        last = self.wait_for(lambda line: not line.startswith(_ROW), seconds, start=self._read_to)
        rows, self._read_to = self.lines[self._read_to : last], last + 1
        answer = json.loads(self.lines[last])
        if "error" in answer:
            raise self.fail(f"answered {answer['error']!r} to {json.dumps(request)[:400]}")
        assert answer["done"] == len(rows)
        return [json.loads(row)["row"] for row in rows]


class StoreClient(JavaProgram):
    """The official client and admin API in one process, for any number of brokers."""

    def __init__(self, peer: Peer, home: Path) -> None:
        super().__init__(peer, "eruca.interop.StoreClient", home)
        self._links = 0

    @contextmanager
    def connect(self, broker: JavaBroker, group: str = "InteropReader") -> Iterator[Link]:
        """A link to a broker, with its own client instance."""
        self._links += 1
        link = Link(self, f"{broker.name}-{self._links}")
        link.ask("connect", nameServer=broker.name_server, broker=broker.name, address=broker.address, group=group)
        yield link
        link.ask("close")


class Link:
    """What one can ask of one broker through the official client."""

    def __init__(self, client: StoreClient, name: str) -> None:
        self._client = client
        self._name = name

    def ask(self, action: str, /, **fields: Any) -> list[Any]:
        """Ask anything `StoreClient.java` knows; `seconds` is also how much longer the answer may take."""
        extra = fields.get("seconds", 0)
        return self._client.ask({"do": action, "link": self._name, **fields}, ANSWER_SECONDS_MAX + extra)

    def dump(self, topics: Sequence[str], tags: str = "*") -> Dump:
        """Every message of every queue of the topics, or those with some tags."""
        rows = self.ask("dump", topics=list(topics), tags=tags)
        bounds = {(row["topic"], row["queueId"]): (row["min"], row["max"]) for row in rows if "min" in row}
        return Dump(bounds, [row for row in rows if "min" not in row])

    def wait_for_offset(self, topic: str, queue_id: int, offset: int, seconds: int = PATIENCE_S) -> None:
        """Wait until a queue has grown to an offset."""
        self.ask("await", topic=topic, queueId=queue_id, offset=offset, seconds=seconds)


@dataclass(frozen=True)
class Dump:
    """What a broker serves: the first offset and the one after the last by queue, and the messages in order."""

    bounds: dict[tuple[str, int], tuple[int, int]]
    messages: list[dict[str, Any]]

    def of_queue(self, topic: str, queue_id: int) -> list[dict[str, Any]]:
        """The messages of one queue."""
        return [row for row in self.messages if (row["topic"], row["queueId"]) == (topic, queue_id)]
