"""The transactions of a store directory, from its commit log alone; a broker may have it open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from eruca._admin.transactiontable import Transaction, TransactionTable
from eruca._store.layout import StorePaths
from eruca._store.log.scan import iter_records
from eruca._storetools.readonly import ReadOnlyStore
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC, OP_HALF_TOPIC
from eruca._wire.record import decode_record
from eruca._wire.sysflag import TRANSACTION_COMMIT, get_transaction
from eruca.errors import WireError


def read_store(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    *,
    commitlog: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Transaction]:
    """Return the transactions of a store directory, from its commit log alone; a broker may have it open."""
    table = TransactionTable()
    ours = {HALF_TOPIC.encode(), OP_HALF_TOPIC.encode(), MAX_CHECK_TOPIC.encode()}
    with ReadOnlyStore(directory, properties, paths=StorePaths(directory, commitlog)) as store:
        for run in store.runs:
            for view, segment, position in iter_records(run, run.start, run.end):
                if progress is not None:
                    progress(view.size)
                if view.topic in ours:
                    try:
                        table.add(decode_record(segment.buffer, position - segment.start))
                    except WireError:
                        continue  # damaged; `eruca store verify` shows where
                elif get_transaction(view.sys_flag) == TRANSACTION_COMMIT:
                    table.add_commit(view.prepared_position, position)
    return list(table.list())


def count_log_bytes(directory: Path, properties: Mapping[str, str] | None = None) -> int:
    """Return how many bytes `read_store` reads at most."""
    with ReadOnlyStore(directory, properties) as store:
        return sum(run.end - run.start for run in store.runs)
