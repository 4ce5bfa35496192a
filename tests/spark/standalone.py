"""A standalone Spark cluster on loopback: one master and two workers, from the package that pip installed.

The package has no start scripts, but its `spark-class` runs the master and the worker as they do.
"""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.interop.javapeer import LOOPBACK, START_SECONDS_MAX, JavaProcess, PeerError, find_ports

WORKERS = 2
# One core and one executor for each worker, small enough for a machine that does other things too.
EXECUTOR_MEMORY = "512m"
_WORKER_MEMORY = "1g"
_DAEMON_MEMORY = "128m"

# What a driver has to say to use the whole cluster and nothing but loopback.
CONF = {
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executor.cores": "1",
    "spark.cores.max": str(WORKERS),
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    # Tasks wait until both workers are there, so that both have some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


class _Daemon(JavaProcess):
    """A master or a worker."""

    def __init__(self, home: Path, name: str, *arguments: str) -> None:
        spark = Path(pyspark.__file__).parent
        # Both `env` and `spark-class` become the process they start, so that the pid is the daemon's.
        command = ["env", f"SPARK_HOME={spark}", f"SPARK_DAEMON_MEMORY={_DAEMON_MEMORY}", f"SPARK_LOCAL_IP={LOOPBACK}"]
        command += [f"SPARK_LOCAL_DIRS={home / 'local'}", f"SPARK_LOG_DIR={home / 'logs'}"]
        command += [f"SPARK_DAEMON_JAVA_OPTS=-XX:-UsePerfData -XX:+UseSerialGC -Djava.io.tmpdir={home}"]
        command += [str(spark / "bin" / "spark-class"), *arguments]
        super().__init__(command, home / f"{name}.log")

    def wait_until_it_says(self, pattern: str) -> re.Match[str]:
        """Wait for a line; a daemon that never says it is not left behind."""
        try:
            number = self.wait_for(lambda line: re.search(pattern, line) is not None, START_SECONDS_MAX)
        except PeerError:
            self.end(signal.SIGKILL)
            raise
        found = re.search(pattern, self.lines[number])
        assert found is not None
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A worker that is told to end takes its executors along; one that is killed leaves them behind.
        self.end(signal.SIGTERM)


class StandaloneCluster:
    """One master and two workers; `master` is what a session or `--master` is given."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        port = find_ports()
        self.workers: list[_Daemon] = []
        with ExitStack() as stack:
            named = ("--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
            main = stack.enter_context(_Daemon(home, "master", "org.apache.spark.deploy.master.Master", *named))
            self.master = main.wait_until_it_says(r"Starting Spark master at (spark://\S+)")[1]
            main.wait_until_it_says("New state: ALIVE")
            for number in range(WORKERS):
                worker = stack.enter_context(
                    _Daemon(
                        home,
                        f"worker-{number}",
                        "org.apache.spark.deploy.worker.Worker",
                        *("--host", LOOPBACK, "--cores", "1", "--memory", _WORKER_MEMORY, "--webui-port", "0"),
                        *("--work-dir", str(home / f"work-{number}"), self.master),
                    )
                )
                self.workers.append(worker)
            for worker in self.workers:
                worker.wait_until_it_says("Successfully registered with master")
            self._stack = stack.pop_all()

    def count_executors(self) -> list[int]:
        """How many executors each worker has started so far."""
        return [sum("Asked to launch executor" in line for line in worker.lines) for worker in self.workers]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
