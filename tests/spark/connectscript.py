"""A client of Spark Connect, in a separate process: one process has either a client or a Spark.

It is told what to do by one argument in JSON, starts a server of its own, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from eruca._spark.session import register_sources
from eruca._spark.source.groupcommits import commit_progress

COLUMNS = "queueId int, queueOffset bigint, body binary"


def main() -> int:
    """Read a topic as a batch, as a stream into files, and as a stream into a function."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    home = Path(told["home"])
    builder = SparkSession.builder.remote("local[2]")
    for name, value in told["conf"].items():
        builder = builder.config(name, value)
    session: Any = builder.getOrCreate()
    register_sources(session)
    commits = commit_progress(session)
    options = {"nameServer": told["nameServer"], "subscribe": told["topic"], "startingOffsets": "earliest"}

    batch = session.read.format("rocketmq").options(**options).load()
    counts = {"batch": batch.count(), "queues": batch.select("queueId").distinct().count()}

    stream = session.readStream.format("rocketmq").schema(COLUMNS).options(**options)
    frame = stream.option("commitOffsetsToGroup", told["group"]).option("maxOffsetsPerTrigger", "40").load()
    writer = frame.writeStream.format("parquet").option("path", str(home / "out"))
    query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    counts["committed"] = int(commits.wait_for_end(query))

    # The function runs where the server is.
    place = str(home / "batches")

    def take(part: Any, batch_id: int) -> None:
        with open(f"{place}-{batch_id}", "w", encoding="utf-8") as file:
            file.write(str(part.count()))

    query = (
        stream.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(home / "functions"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps(counts), flush=True)
    commits.close()
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
