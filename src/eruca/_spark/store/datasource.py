"""`format("rocketmq-store")`: the records of store directories, ours or Java's, copied or open in a broker.

    spark.read.format("rocketmq-store").load("/data/store")

The source reads the commit log, so it returns everything: delayed messages, undecided transactions, and rolled-back
ones; `isolation=committed` excludes transactions that are not committed. `.schema(...)` selects columns. Three more are
available, which consume queues and index are made of: `tagsCode`, `keyHashes` and `hasEntry`.
"""

from __future__ import annotations

import glob
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StructType

from eruca._ground.clock import SystemClock
from eruca._ground.config import StoreOptions, parse_delay_levels
from eruca._spark.columns import STORE_COLUMNS, Column, choose_columns, make_arrow_schema, make_schema, tighten
from eruca._spark.optiontable import (
    OptionTable,
    SourceOption,
    read_bytes,
    read_choice,
    read_count,
    read_flag,
)
from eruca._spark.parsing import RecordParser, Records, check_crcs, read_int64, read_sys_flags, split
from eruca._spark.store.digests import digest_records
from eruca._spark.store.logfiles import (
    Piece,
    StoreLog,
    TopicChoice,
    describe_place,
    fail_on,
    plan_pieces,
    walk_piece,
)
from eruca._spark.timestamps import read_timestamp
from eruca._spark.worker import prepare_worker
from eruca._store.log.scan import Damage
from eruca._store.queues.removed import RemovedTopics
from eruca._wire.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca._wire.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from eruca.errors import ConfigError, StoreError

log = logging.getLogger(__name__)

NAME: Final = "rocketmq-store"
# Columns that must be selected explicitly.
DIGEST_COLUMNS: Final = (
    Column("tagsCode", LongType(), pa.int64()),
    Column("keyHashes", ArrayType(IntegerType()), pa.list_(pa.int32())),
    Column("hasEntry", BooleanType(), pa.bool_()),
)
# Internal topics of a broker.
_INTERNAL: Final = frozenset({HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC})
_INTERNAL_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_")
_UNDECIDED: Final = frozenset({HALF_TOPIC, OP_HALF_TOPIC})
_INT_MAX: Final = 2**31 - 1
# The property of a damaged range that is reported as a row.
DAMAGE: Final = "DAMAGE"


def _read_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("it is empty")
    return names


def _read_paths(text: str) -> tuple[str, ...]:
    if text.startswith("["):
        return tuple(str(path) for path in json.loads(text))
    return _read_names(text)


def _read_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


def _read_levels(text: str) -> list[int]:
    return parse_delay_levels(text)


def _read_time(text: str) -> int:
    return read_timestamp(text).resolve(SystemClock().now_ms())


OPTIONS: Final = OptionTable(
    NAME,
    (
        SourceOption("path", _read_paths, (), "store directories, or copies of commit logs, separated by commas"),
        SourceOption("paths", _read_paths, (), "the same, set by Spark when load() gets several paths"),
        SourceOption("subscribe", _read_names, (), "only these topics, separated by commas"),
        SourceOption("subscribePattern", _read_pattern, None, "only topics whose whole name matches"),
        SourceOption("includeInternal", read_flag, True, "include the broker's internal topics"),
        SourceOption(
            "startingTimestamp",
            _read_time,
            None,
            "records stored at this time or later: epoch in ms or s, ISO 8601, or relative (-10m)",
        ),
        SourceOption("endingTimestamp", _read_time, None, "records stored before this time"),
        SourceOption("broker", _read_names, (), "value of the column broker: one name, or one per path"),
        SourceOption("minPartitions", read_count(), 1, "split the logs into at least about this many tasks"),
        SourceOption("maxPartitions", read_count(), None, "split the logs into at most this many tasks"),
        SourceOption("bytesPerPartition", read_bytes, None, "bytes that one task reads, for example 128m"),
        SourceOption("verifyCrc", read_flag, False, "treat a record whose body does not match its CRC as damage"),
        SourceOption(
            "onDamage",
            read_choice("fail", "skip", "report"),
            "fail",
            "what to do with damaged ranges: fail, skip, or report them as rows",
        ),
        SourceOption("decompress", read_flag, True, "decompress bodies"),
        SourceOption("includeProperties", read_flag, True, "include the column properties"),
        SourceOption("isolation", read_choice("all", "committed"), "all", "all records, or only committed ones"),
        SourceOption(
            "messageDelayLevel",
            _read_levels,
            parse_delay_levels(StoreOptions().delay_levels),
            "delay levels of the broker, used for tagsCode",
        ),
    ),
)


@dataclass(frozen=True)
class StorePartition(InputPartition):
    """What one task reads."""

    broker: str
    pieces: tuple[Piece, ...]
    # Ranges of missing segments.
    gaps: tuple[Damage, ...] = ()
    removed: RemovedTopics | None = None


class StoreSource(DataSource):
    """The data source `rocketmq-store`: store directories of brokers."""

    @classmethod
    def name(cls) -> str:
        """Return the name that users write in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """Return all columns except those that must be selected explicitly."""
        values = OPTIONS.read(self.options)
        columns = [column for column in STORE_COLUMNS if values["includeProperties"] or column.name != "properties"]
        return make_schema(tighten(columns) if _is_whole(values) else columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        values = OPTIONS.read(self.options)
        return StoreReader(values, choose_columns(schema, (*STORE_COLUMNS, *DIGEST_COLUMNS), tight=_is_whole(values)))


class StoreReader(DataSourceReader):
    """Reads store directories once."""

    def __init__(self, values: Mapping[str, Any], columns: Sequence[Column]) -> None:
        self._values = dict(values)
        self._columns = tuple(columns)
        self._paths = find_places(values)
        self._brokers = _name_brokers(self._paths, values["broker"])

    # -- where the query is planned ----------------------------------------------------------------------------------

    def partitions(self) -> Sequence[StorePartition]:
        """Divide the logs into tasks."""
        values = self._values
        logs = [StoreLog(path) for path in self._paths]
        try:
            for each in logs:
                for gap in each.gaps:
                    self._judge(
                        StoreError(
                            f"{each.paths.commitlog}: {gap.length} bytes from position {gap.position} on: {gap.reason}",
                            hint="onDamage=skip continues after it, onDamage=report returns it as a row",
                        )
                    )
            tasks = plan_pieces(
                logs,
                piece_bytes=values["bytesPerPartition"],
                count_min=values["minPartitions"],
                count_max=values["maxPartitions"],
            )
            found: list[StorePartition] = []
            for each, broker, own in zip(logs, self._brokers, tasks, strict=True):
                shown = tuple(each.gaps) if values["onDamage"] == "report" else ()
                if shown:
                    found.append(StorePartition(broker, (), shown))
                found += [StorePartition(broker, tuple(pieces), removed=each.load_removed()) for pieces in own]
            # Spark requires at least one.
            return found or [StorePartition("", ())]
        finally:
            for each in logs:
                each.close()

    def _judge(self, error: StoreError) -> None:
        """Raise the error or log it, depending on onDamage; reported rows are not logged as well."""
        if self._values["onDamage"] == "fail":
            raise error
        if self._values["onDamage"] == "skip":
            log.error("%s", error.args[0])

    # -- in the tasks ------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one task."""
        prepare_worker()
        assert isinstance(partition, StorePartition)
        parser = StoreParser(self._columns, self._values)
        for gap in partition.gaps:
            yield parser.show_damage(gap, partition.broker)
        topics = choose_topics(self._values)
        for piece in partition.pieces:
            for found in walk_piece(piece, topics):
                if isinstance(found, Damage):
                    self._judge(fail_on(piece, found))
                    if self._values["onDamage"] == "report":
                        yield parser.show_damage(found, partition.broker)
                    continue
                records = self._choose_records(piece, found)
                for part in split(records):
                    yield parser.parse(part, partition)

    def _choose_records(self, piece: Piece, records: Records) -> Records:
        """Return the records that match the options."""
        values = self._values
        wanted: npt.NDArray[np.bool_] | None = None
        if values["isolation"] == "committed":
            kinds = read_sys_flags(records) & TRANSACTION_MASK
            wanted = (kinds != TRANSACTION_PREPARED) & (kinds != TRANSACTION_ROLLBACK)
        begin, end = values["startingTimestamp"], values["endingTimestamp"]
        if begin is not None or end is not None:
            times = read_int64(records, 56, 1)
            in_time = np.ones(records.count, np.bool_)
            if begin is not None:
                in_time &= times >= begin
            if end is not None:
                in_time &= times < end
            wanted = in_time if wanted is None else wanted & in_time
        if wanted is not None and not wanted.all():
            records = records.select(wanted)
        if values["verifyCrc"] and records.count:
            good = check_crcs(records)
            if not good.all():
                for position in read_int64(records, 28)[~good].tolist():
                    self._judge(_fail_on_crc(piece, position))
                if values["onDamage"] != "report":
                    records = records.select(good)
        return records


class StoreParser:
    """Converts records to batches with the selected columns."""

    def __init__(self, columns: Sequence[Column], values: Mapping[str, Any]) -> None:
        extra = {column.name for column in DIGEST_COLUMNS}
        self._columns = tuple(columns)
        self._schema = make_arrow_schema(columns)
        self._parser = RecordParser(
            [column for column in columns if column.name not in extra], decompress_bodies=values["decompress"]
        )
        self._levels: list[int] = values["messageDelayLevel"]
        self._digests = extra & {column.name for column in columns}

    def parse(self, records: Records, partition: StorePartition) -> pa.RecordBatch:
        """Return one batch of all records."""
        batch = self._parser.parse(records, partition.broker)
        if not self._digests:
            return batch
        extra = digest_records(records, self._levels, partition.removed, self._digests)
        arrays = [extra[name] if name in extra else batch.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def show_damage(self, damage: Damage, broker: str) -> pa.RecordBatch:
        """Return a row for a range that is not a record: its position, length and the reason."""
        says = {
            "broker": broker,
            "physicalOffset": damage.position,
            "size": min(damage.length, _INT_MAX),
            "crcOk": False,
            "properties": [(DAMAGE, damage.reason)],
        }
        arrays = [pa.array([says.get(column.name)], column.arrow) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _is_whole(values: Mapping[str, Any]) -> bool:
    """Whether every row is a record. Rows of damaged ranges have nulls in most columns."""
    return bool(values["onDamage"] != "report")


def choose_topics(values: Mapping[str, Any]) -> TopicChoice | None:
    """Return the selected topics; None for all."""
    rules: list[Callable[[str], bool]] = []
    if values["subscribe"]:
        wanted = frozenset(values["subscribe"])
        rules.append(lambda topic: topic in wanted)
    if values["subscribePattern"] is not None:
        matches = values["subscribePattern"].fullmatch
        rules.append(lambda topic: matches(topic) is not None)
    if not values["includeInternal"]:
        rules.append(lambda topic: topic not in _INTERNAL and not topic.startswith(_INTERNAL_PREFIXES))
    if values["isolation"] == "committed":
        rules.append(lambda topic: topic not in _UNDECIDED)
    return TopicChoice(lambda topic: all(rule(topic) for rule in rules)) if rules else None


def find_places(values: Mapping[str, Any]) -> list[Path]:
    """Return the directories of a query, with wildcards expanded. Raises ConfigError if there are none."""
    if values["subscribe"] and values["subscribePattern"] is not None:
        raise ConfigError("subscribe and subscribePattern are mutually exclusive", hint="give only one of them")
    named = (*values["path"], *values["paths"])
    if not named:
        raise ConfigError("no store is given", hint='.load("/data/store"), or .option("path", "/data/a,/data/b")')
    places: list[Path] = []
    for name in named:
        plain = name.removeprefix("file://")
        found = sorted(glob.glob(plain)) if glob.has_magic(plain) else [plain]
        if not found:
            raise ConfigError(f"path={name}: no such directory")
        places += [Path(each) for each in found]
    return places


def encode_paths(paths: Sequence[str]) -> str:
    """Return directories as a value of the option `path`, with special characters escaped."""
    return json.dumps([glob.escape(path) for path in paths])


def _name_brokers(paths: Sequence[Path], given: Sequence[str]) -> list[str]:
    """Return the value of the column broker for each path; by default the path itself."""
    if not given:
        return [str(path) for path in paths]
    if len(given) == 1:
        return list(given) * len(paths)
    if len(given) != len(paths):
        raise ConfigError(
            f"option broker has {len(given)} names for {len(paths)} paths", hint="give one, or one for each path"
        )
    return list(given)


def _fail_on_crc(piece: Piece, position: int) -> StoreError:
    return StoreError(
        f"{describe_place(piece, position)}: the body of the record does not match its CRC",
        hint="onDamage=skip leaves it out, onDamage=report keeps it, with crcOk false",
    )
