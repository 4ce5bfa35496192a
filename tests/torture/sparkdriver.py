"""A Spark driver that streams a topic into Parquet until its input is closed, or it is killed.

It is configured by one argument in JSON, and runs with `python -m tests.torture.sparkdriver`.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from eruca._spark.session import make_session

COLUMNS = "queueId int, queueOffset bigint, body binary"


def main() -> int:
    """Run the query."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    home = told["home"]
    session = make_session(
        "killed",
        "local[2]",
        {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": f"{home}/local",
            "spark.sql.warehouse.dir": f"{home}/warehouse",
        },
    )
    reader = session.readStream.format("rocketmq").schema(COLUMNS)
    for name, value in told["options"].items():
        reader = reader.option(name, str(value))
    writer = reader.load().writeStream.format("parquet").option("path", told["out"])
    query = writer.option("checkpointLocation", told["checkpoint"]).start()

    def wait_for_end() -> None:
        sys.stdin.read()
        query.stop()

    threading.Thread(target=wait_for_end, daemon=True).start()
    query.awaitTermination()
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
