"""A Spark driver that streams files into a topic until all are there, or it is killed.

Its workers end on their own now and then, in the middle of a task. It is configured by one argument in JSON, and
runs with `python -m tests.torture.sparksinkdriver`.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import TaskContext

from eruca._spark.session import make_session


def make_dying(seed: int, share: float, notes: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A step that changes nothing, but whose worker ends in a share of first attempts, at a place given by the seed."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        rng = random.Random(f"{seed}:{batch}:{context.partitionId()}")
        dies = context.attemptNumber() == 0 and rng.random() < share
        place = rng.randrange(1, 6)
        for number, rows in enumerate(batches):
            if dies and number == place:
                end_worker()
            yield rows
        if dies:
            end_worker()

    def end_worker() -> None:
        with open(notes, "ab") as file:  # one write, so that two workers do not mix
            file.write(b"x")
        os._exit(1)

    return pass_on


def main() -> int:
    """Run the query."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    home = told["home"]
    session = make_session(
        "killed-sink",
        "local[2,4]",  # a task may fail three times
        {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.local.dir": f"{home}/local",
            "spark.sql.warehouse.dir": f"{home}/warehouse",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(told["arrowRows"]),
        },
    )
    reader = session.readStream.schema("body binary").option("maxFilesPerTrigger", told["filesPerBatch"])
    frame = reader.parquet(told["input"])
    frame = frame.mapInArrow(make_dying(told["seed"], told["exitShare"], told["notes"]), "body binary")
    writer = frame.writeStream.format("rocketmq").option("checkpointLocation", told["checkpoint"])
    for name, value in told["options"].items():
        writer = writer.option(name, str(value))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
