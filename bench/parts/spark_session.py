"""The one Spark session both sides of the comparison use, and the CPU its processes take."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from bench.runner import BenchError
from eruca._spark.session import choose_java_options, choose_sockets

_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS_MAX = 60


@contextmanager
def started_session(home: Path, cores: int, jars: Sequence[Path]) -> Iterator[tuple[SparkSession, int]]:
    """A session on this machine with all its files below `home`, and the pid of its JVM, which ends with it."""
    home.mkdir(parents=True)
    # Workers take the first python3 of the path otherwise.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("SPARK_HOME", None)
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "bench",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # As sessions of ours have them. Both sides run with them, but Arrow and Python workers are ours alone.
        "spark.driver.defaultJavaOptions": choose_java_options({}, "driver"),
        **choose_sockets(),
        "spark.driver.extraJavaOptions": f"-XX:-UsePerfData -Djava.io.tmpdir={home}",
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    log = home / "driver.log"
    with open(log, "wb") as file:
        gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
    process = gateway.proc
    assert process is not None
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        session = SparkSession(context)
        try:
            yield session, process.pid
        finally:
            session.stop()
    except BenchError:
        raise
    except Exception as error:
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise BenchError(f"Spark: {error}"[:3000] + f"\n{said}") from error
    finally:
        with suppress(Exception):
            gateway.shutdown()
        # It ends when its input is closed.
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS_MAX)
        finally:
            if process.poll() is None:
                process.kill()
        SparkContext._gateway = SparkContext._jvm = None


class CpuMeter:
    """CPU seconds of the driver and of brokers, with all their children, those that have ended too."""

    def __init__(self, driver: int, brokers: Mapping[str, int]) -> None:
        self._driver = driver
        self._brokers = dict(brokers)
        # The daemon that starts the workers does not wait for them, so a worker's CPU time is lost with it. They end
        # after a minute of idling: the last observed value is taken as their total.
        self._workers: dict[int, float] = {}

    def read(self) -> dict[str, float]:
        """CPU seconds so far: of the driver's JVM, of the Python processes it started, and of each broker."""
        times, children = _read_processes()
        own, ended = times[self._driver]
        direct = children.get(self._driver, [])
        for pid in direct:
            self._workers |= {worker: _sum_tree(worker, times, children) for worker in children.get(pid, ())}
        python = ended + sum(sum(times[pid]) for pid in direct) + sum(self._workers.values())
        found = {"JVM": own, "Python": python}
        return found | {name: _sum_tree(pid, times, children) for name, pid in self._brokers.items()}


def _read_processes() -> tuple[dict[int, tuple[float, float]], dict[int, list[int]]]:
    """By pid: CPU seconds of a process itself and of its children that have ended; and who its children are."""
    times: dict[int, tuple[float, float]] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            # The name in parentheses may contain anything; the wanted fields follow it.
            fields = (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        user, system, user_ended, system_ended = (int(field) / _TICKS for field in fields[11:15])
        times[int(path.name)] = user + system, user_ended + system_ended
        children[int(fields[1])].append(int(path.name))
    return times, children


def _sum_tree(pid: int, times: Mapping[int, tuple[float, float]], children: Mapping[int, list[int]]) -> float:
    below = sum(_sum_tree(child, times, children) for child in children.get(pid, ()))
    return sum(times.get(pid, (0.0, 0.0))) + below
