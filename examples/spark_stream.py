"""A topic as a stream: into Parquet files exactly once, with a restart in between and the lag in a group.

The first run of the query reads the messages that are there and ends. More messages are sent, and the second run
continues from the checkpoint, where the first one stopped. Needs Java 17 and `pip install "eruca[spark]"`.

    python examples/spark_stream.py
    python examples/spark_stream.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from sparkstage import open_spark
from stage import Stage, open_stage, tell

from eruca.sync import Outgoing, Producer


def main(stage: Stage) -> None:
    """Send, stream, send more, and stream again."""
    topic = stage.name("clicks")
    with (
        tempfile.TemporaryDirectory() as directory,
        Producer(stage.nameserver, group=stage.name("shop")) as producer,
        open_spark() as spark,
    ):
        for part in range(2):
            numbers = range(part * 100, part * 100 + 100)
            producer.send_batch(topic, [Outgoing(b"click %d" % number) for number in numbers])
            stream(spark, stage, topic, Path(directory))
            clicks = spark.read.parquet(f"{directory}/clicks")
            distinct = clicks.select("body").distinct().count()
            tell(f"* Run {part + 1}: {clicks.count()} clicks in the files, {distinct} distinct.")
    tell("* Nothing is missing and nothing is duplicated.")


def stream(spark: Any, stage: Stage, topic: str, directory: Path) -> None:
    """Write new messages to Parquet, and end."""
    from eruca.spark import commit_progress

    # Offsets are in the checkpoint; the group only gets a copy, so that its lag shows in `eruca offset show`.
    commits = commit_progress(spark)
    query = (
        spark.readStream.format("rocketmq")
        .option("nameServer", stage.nameserver)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("commitOffsetsToGroup", stage.name("archive"))
        .option("maxOffsetsPerTrigger", 60)
        .load()
        .select("queueId", "queueOffset", "storeTimestamp", "body")
        .writeStream.format("parquet")
        .option("path", str(directory / "clicks"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    commits.wait_for_end(query)
    spark.streams.removeListener(commits)
    commits.close()
    batches = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    tell(f"  {sum(batches)} new clicks in {len(batches)} batches")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        main(stage)
