"""`query`: SQL over an archive and the live topics as one table, `messages`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import IO, TYPE_CHECKING, Any, Final

from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._spark.pipelines.summary import JobSummary
from eruca._spark.pipelines.tracking import track_job
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW: Final = "messages"


class QueryResult:
    """The rows of a statement, read lazily, and the summary of the job."""

    def __init__(self, frame: DataFrame, summary: JobSummary) -> None:
        self._frame = frame
        self.summary = summary
        self.columns: Sequence[str] = frame.columns

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows as plain values: times in ISO 8601, bytes as text."""
        for row in self._frame.toLocalIterator(prefetchPartitions=True):
            self.summary.rows += 1
            yield tuple(show_value(value) for value in row)

    def collect(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return list(self.rows())

    def write(self, target: str, form: str = "parquet") -> None:
        """Write the rows to files instead."""
        self._frame.write.format(form).save(target)
        self.summary.outputs["result"] = target


def run_query(session: SparkSession, wanted: MessageInput, statement: str) -> QueryResult:
    """Run a SQL statement over the messages of an input. Raises ConfigError if Spark cannot parse it."""
    from pyspark.errors import AnalysisException, ParseException

    with track_job(session, "query") as summary:
        open_messages(session, wanted, summary.warnings).createOrReplaceTempView(VIEW)
        try:
            frame = session.sql(statement)
        except (ParseException, AnalysisException) as error:
            first = str(error).strip().splitlines()[0]
            raise ConfigError(f"the statement is not understood: {first}", hint=f"the table is called {VIEW}") from None
    return QueryResult(frame, summary)


def show_value(value: Any) -> Any:
    """Convert a Spark value to JSON types; bytes that are not text become `0x...`."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
    if isinstance(value, datetime):
        # Spark returns local times without a zone.
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): show_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [show_value(each) for each in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def write_csv(result: QueryResult, stream: IO[str]) -> None:
    """Write the rows as CSV with a header line; nested values become JSON."""
    writer = csv.writer(stream)
    writer.writerow(result.columns)
    for row in result.rows():
        writer.writerow([json.dumps(each) if isinstance(each, dict | list) else each for each in row])


def write_json(result: QueryResult, stream: IO[str]) -> None:
    """Write the rows as JSON, one object per line."""
    for row in result.rows():
        stream.write(json.dumps(dict(zip(result.columns, row, strict=True)), ensure_ascii=False) + "\n")
