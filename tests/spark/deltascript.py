"""An archive in Delta, in a Spark of its own: its jars must be there when Java starts.

    python -m tests.spark.deltascript NAMESERVER TOPIC ARCHIVE JARS

Archives what there is, dies between the table and the ledger once it was told (a line on stdin), archives again, puts
small files together, and prints what it found after each step as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

from eruca._spark.cluster import Access
from eruca._spark.pipelines.archive.delta import DELTA_CONF
from eruca._spark.pipelines.archive.job import read_archive, run_archive
from eruca._spark.pipelines.archive.ledger import Ledger
from eruca._spark.session import make_session


def main(nameserver: str, topic: str, archive: str, jars: str) -> None:
    """Do it all."""
    conf = {
        **DELTA_CONF,
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    session = make_session("delta", "local[2]", conf)

    def archive_once(**how: Any) -> int:
        summary = run_archive(session, archive, access=Access(nameserver), topics=[topic], form="delta", **how)
        return summary.rows

    def tell(**what: Any) -> None:
        rows = read_archive(session, archive).collect()
        places = {(row.topic, row.queueId, row.queueOffset) for row in rows}
        print(json.dumps({**what, "rows": len(rows), "distinct": len(places)}), flush=True)

    tell(added=archive_once(compact=False))
    sys.stdin.readline()
    with mock.patch.object(Ledger, "commit", side_effect=KeyboardInterrupt):
        try:
            archive_once(compact=False)
        except KeyboardInterrupt:
            print(json.dumps({"died": True}), flush=True)
    sys.stdin.readline()
    tell(added=archive_once(compact=True))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
