"""Archives as Delta tables: every commit of the table carries the entry of the ledger, so that both agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from eruca._spark.pipelines.archive.frames import ARCHIVE_SCHEMA, PARTITIONS
from eruca._spark.pipelines.archive.ledger import MESSAGES, NO_REASON, Entry, Ledger
from eruca._spark.pipelines.directories import Directory
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a session needs besides the jar.
DELTA_CONF: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
DELTA_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"


def append(session: SparkSession, place: Directory, staging: str, entry: Entry) -> None:
    """Append what a run has written to the table, together with its entry."""
    frame = session.read.schema(ARCHIVE_SCHEMA).parquet(place.locate_to_read(f"{staging}/{NO_REASON}"))
    (
        frame.write.format("delta")
        .mode("append")
        .partitionBy(*PARTITIONS)
        .option("userMetadata", msgspec.json.encode(entry).decode())
        .save(place.locate(MESSAGES))
    )


def catch_up(session: SparkSession, place: Directory, ledger: Ledger, last: Entry | None) -> Entry | None:
    """Return the last entry of the table; adds it to the ledger if a run died in between."""
    if session.conf.get("spark.sql.catalog.spark_catalog", "") != DELTA_CONF["spark.sql.catalog.spark_catalog"]:
        raise ConfigError(
            "this session cannot write Delta", hint=f"give it the package {DELTA_PACKAGE} and its settings"
        )
    if not place.exists(f"{MESSAGES}/_delta_log"):
        return last
    history = session.sql(f"describe history {_name_table(place)}")
    for row in history.where("userMetadata is not null").orderBy("version", ascending=False).limit(1).collect():
        noted = msgspec.json.decode(row.userMetadata, type=Entry)
        if last is None or noted.generation > last.generation:
            ledger.commit(noted)
            return noted
    return last


def optimize(session: SparkSession, place: Directory) -> int:
    """Let Delta merge small files; returns how many were removed."""
    (row,) = session.sql(f"optimize {_name_table(place)}").collect()
    return int(row.metrics.numFilesRemoved)


def _name_table(place: Directory) -> str:
    """Return the table name in SQL, with its path quoted."""
    return "delta.`" + place.locate(MESSAGES).replace("`", "``") + "`"
