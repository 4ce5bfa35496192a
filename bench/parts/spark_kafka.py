"""A Kafka broker and the Kafka connector of Spark, fetched by Maven by package name and kept in the user's cache."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.parts.others import find_reason
from bench.runner import BenchError
from tests.interop.javapeer import LOOPBACK, START_SECONDS_MAX, JavaProcess, PeerError, find_ports

_POMS = Path(__file__).parent / "kafka"
_FETCH_SECONDS_MAX = 900
_CONNECTOR = "spark-sql-kafka-0-10_2.13"
# As in its own start script.
_JVM_FLAGS = (
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """Where the jars are."""

    broker: Path
    connector: tuple[Path, ...]

    @property
    def broker_version(self) -> str:
        """The version of the broker."""
        return _find_version(self.broker.iterdir(), "kafka_2.13")

    @property
    def connector_version(self) -> str:
        """The version of the connector, which is the version of Spark it was built for."""
        return _find_version(self.connector, _CONNECTOR)


def _find_version(jars: Iterator[Path] | tuple[Path, ...], name: str) -> str:
    (found,) = (jar.stem.removeprefix(f"{name}-") for jar in jars if jar.name.startswith(f"{name}-"))
    return found


def fetch_jars() -> KafkaJars:
    """Fetch the jars that an earlier run has not fetched. Raises BenchError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eruca-bench"
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / ".kafka"):
        broker = _fetch(cache, "broker")
        connector = _fetch(cache, "connector")
    return KafkaJars(broker, tuple(sorted(connector.iterdir())))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep two runs from fetching into the same folder."""
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(cache: Path, name: str) -> Path:
    pom = _POMS / f"{name}.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    folder = cache / f"kafka-{name}-{digest}"
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        # Maven needs its project in a separate folder.
        staging = Path(directory)
        shutil.copyfile(pom, staging / "pom.xml")
        command = ["mvn", "-q", "-B", "-f", str(staging / "pom.xml"), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={staging / 'jars'}"]
        _run(command, _FETCH_SECONDS_MAX)
        (staging / "jars").rename(folder)
    return folder


def _run(command: list[str], seconds: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{command[0]}: {error}", hint="`make setup-java` installs Java and Maven") from error
    if done.returncode:
        said = done.stdout + done.stderr
        errors = [line for line in said.splitlines() if "ERROR" in line or "Exception" in line]
        raise BenchError(f"{command[0]} failed: {(errors or [find_reason(said)])[0][:600]}")


class KafkaBroker(JavaProcess):
    """One broker that is its own controller, with its own defaults; it is running when this returns."""

    def __init__(self, jars: KafkaJars, home: Path) -> None:
        home.mkdir(parents=True)
        self.port = find_ports(1)
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOOPBACK}:{self.port + 1}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self.port + 1}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "log.dirs": home / "data",
            # Topics are created explicitly.
            "auto.create.topics.enable": "false",
            # There is only one broker.
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        config = home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        java = ["java", *_JVM_FLAGS, f"-Dlog4j.configuration=file:{_POMS / 'log4j.properties'}"]
        java += ["-cp", f"{jars.broker}/*"]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        _run([*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)], START_SECONDS_MAX)
        super().__init__([*java, "kafka.Kafka", str(config)], home / "kafka.log")
        try:
            self.wait_for(lambda line: "Kafka Server started" in line, START_SECONDS_MAX)
        except PeerError as error:
            self.end(signal.SIGKILL)
            raise BenchError(str(error)) from error

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{LOOPBACK}:{self.port}"


def make_kafka_topic(session: Any, address: str, name: str, partitions: int) -> None:
    """Create a topic with the client of the session's connector, and wait until it can be used."""
    kafka, optional = session._jvm.org.apache.kafka, session._jvm.java.util.Optional
    admin = kafka.clients.admin.Admin.create({"bootstrap.servers": address})
    try:
        topic = kafka.clients.admin.NewTopic(name, optional.of(partitions), optional.empty())
        admin.createTopics([topic]).all().get()
        # If some partitions have no leader yet, a writer may have its first request rejected and its second accepted;
        # the first one can then never succeed. Asking for the offsets waits until every partition has a leader.
        latest = kafka.clients.admin.OffsetSpec.latest()
        places = {kafka.common.TopicPartition(name, number): latest for number in range(partitions)}
        admin.listOffsets(places).all().get()
    finally:
        admin.close()
