"""Streams of tests: started, waited for, and what they wrote read without Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from eruca.admin import Admin
from tests.interop.brokers import Cluster
from tests.patience import PATIENCE_S
from tests.spark.producing import run

_POLL_S: Final = 0.05
# Spark says so when a Python process has not started within ten seconds, which no setting changes.
TOO_SLOW: Final = "Python worker failed to connect back"
COLUMNS: Final = "topic string, queueId int, queueOffset bigint, body binary"

# A row as tests compare it: queue, offset, body.
Row = tuple[int, int, bytes]


def number_bodies(begin: int, end: int) -> list[bytes]:
    """Bodies that tell which message they are."""
    return [b"message-%04d" % number for number in range(begin, end)]


def open_stream(spark: Any, cluster: Cluster, **options: object) -> Any:
    """A frame over a stream, with few columns. Reads from the beginning unless told otherwise."""
    given = {"nameServer": cluster.name_server, "startingOffsets": "earliest", **options}
    if any(name in given for name in ("startingTimestamp", "startingOffsetsByTimestamp")):
        del given["startingOffsets"]
    reader = spark.readStream.format("rocketmq").schema(COLUMNS)
    for name, value in given.items():
        reader = reader.option(name, str(value))
    return reader.load()


class Sink:
    """A directory a stream writes Parquet to, with its checkpoint."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.out, self.checkpoint = home / "out", home / "checkpoint"

    def write(self, frame: Any, **trigger: Any) -> Any:
        """Start a query."""
        writer = frame.writeStream.format("parquet").option("path", str(self.out))
        if trigger:
            writer = writer.trigger(**trigger)
        return start_query(writer.option("checkpointLocation", str(self.checkpoint)))

    def run(self, frame: Any) -> list[dict[str, Any]]:
        """Read what is available now; returns the progress of each batch that had rows."""
        query = self.write(frame, availableNow=True)
        finish(query)
        return [dict(json.loads(each.json)) for each in query.recentProgress if each.numInputRows]

    @contextmanager
    def running(self, frame: Any) -> Iterator[Any]:
        """A query that runs until the block ends."""
        query = self.write(frame)
        try:
            yield query
        finally:
            query.stop()

    def read(self) -> pa.Table:
        """All it has, as the log of the sink says: files of batches that failed do not count."""
        files = list_files(self.out)
        if not files:
            return pa.table({"topic": [], "queueId": [], "queueOffset": [], "body": []})
        return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])

    def list_rows(self) -> list[Row]:
        """Queue, offset and body of every row, sorted."""
        table = self.read()
        return sorted(zip(*[table[name].to_pylist() for name in ("queueId", "queueOffset", "body")], strict=True))

    def list_bodies(self) -> list[bytes]:
        """The bodies, sorted."""
        return sorted(body for _, _, body in self.list_rows())

    def wait_for(self, query: Any, check: Callable[[list[Row]], bool]) -> list[Row]:
        """Wait until the rows are as they should be."""
        found: list[Row] = []

        def look() -> bool:
            if query.exception() is not None:
                raise AssertionError(str(query.exception()))
            found[:] = self.list_rows()
            return check(found)

        wait_for(look, lambda: f"{len(found)} rows: {found[:5]}")
        return found

    def read_offsets(self) -> list[dict[str, Any]]:
        """The end offsets of every batch, from the checkpoint."""
        names = sorted(int(path.name) for path in (self.checkpoint / "offsets").iterdir() if path.name.isdecimal())
        return [json.loads(self.read_offset_text(name)) for name in names]

    def read_offset_text(self, batch: int) -> str:
        """The end offset of a batch as Spark wrote it."""
        return (self.checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2]


def start_query(writer: Any) -> Any:
    """Start a query, again if the Python process of its source was too slow: the query has done nothing then."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        query = writer.start()
        wait_for(partial(_is_initialized, query), lambda: "the query does not start")
        error = query.exception()
        if error is None or TOO_SLOW not in str(error) or time.monotonic() > deadline:
            return query


def _is_initialized(query: Any) -> bool:
    return not query.status["message"].startswith("Initializing")


def finish(query: Any, timeout_s: float = PATIENCE_S) -> None:
    """Wait for a query that ends on its own. Raises what it failed with."""
    try:
        assert query.awaitTermination(timeout_s), f"the query has not ended after {timeout_s} s: {query.status}"
    finally:
        query.stop()


def wait_for(check: Callable[[], bool], describe: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not check():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s: {describe()}"
        pause.wait(_POLL_S)


def wait_for_next_ms() -> int:
    """Wait until the clock advances; returns the time, which is later than that of all that was stored before."""
    before = time.time_ns() // 1_000_000
    wait_for(lambda: time.time_ns() // 1_000_000 > before, lambda: "the clock stands still")
    return time.time_ns() // 1_000_000


def show_group(cluster: Cluster, group: str) -> dict[int, tuple[int, int]]:
    """The offset and the lag of a group in each queue, as `eruca offset show` has them."""

    async def ask() -> dict[int, tuple[int, int]]:
        async with Admin(cluster.name_server) as admin:
            return {row.queue: (row.offset, row.lag) for row in (await admin.offsets.show(group)).items}

    return run(ask())


def list_files(directory: Path) -> list[Path]:
    """The files a stream has committed to a directory of Parquet."""
    log = directory / "_spark_metadata"
    batches: dict[int, Path] = {}
    if log.exists():
        for path in log.iterdir():
            name, _, kind = path.name.partition(".")
            if name.isdecimal() and kind in ("", "compact"):
                batches[int(name)] = path
    begin = max((number for number, path in batches.items() if path.name.endswith(".compact")), default=0)
    found: dict[Path, None] = {}
    for number in sorted(number for number in batches if number >= begin):
        version, *lines = batches[number].read_text(encoding="utf-8").splitlines()
        assert version == "v1"
        for line in lines:
            entry: Mapping[str, Any] = json.loads(line)
            assert entry["action"] == "add"
            found[Path(unquote(urlsplit(entry["path"]).path))] = None
    return list(found)
