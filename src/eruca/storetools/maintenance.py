"""What `eruca store` can do with a store directory, in one place.

`describe_store`, `dump_records` and `verify_store` only look, at a store of ours or of Java's, open or closed.
`rebuild_store` takes the lock and makes consume queues and index again from the commit log alone.
"""

from __future__ import annotations

from eruca.storetools.dump import RecordFilter, RecordRow, dump_records
from eruca.storetools.readonly import Finding, Kind, Level
from eruca.storetools.rebuild import RebuildReport, rebuild_store
from eruca.storetools.summary import StoreSummary, describe_store, measure_log
from eruca.storetools.verify import VerifyReport, verify_store

__all__ = [
    "Finding",
    "Kind",
    "Level",
    "RebuildReport",
    "RecordFilter",
    "RecordRow",
    "StoreSummary",
    "VerifyReport",
    "describe_store",
    "dump_records",
    "measure_log",
    "rebuild_store",
    "verify_store",
]
