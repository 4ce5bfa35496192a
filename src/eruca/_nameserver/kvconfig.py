"""Key-value config: strings by namespace and key, stored in one JSON file that Java's name server reads and writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from eruca._ground.limits import KV_BYTES_MAX, KV_VALUE_CHARS_MAX
from eruca._net.guards import Reporter
from eruca._net.meters import count_refused, show
from eruca._store.filesystem import FileSystem
from eruca._store.tables.saving import TableSaver
from eruca._store.tables.tables import TableFile
from eruca._wire.bodies import JsonBody, KVTable
from eruca._wire.bodies.shared import kept_dict
from eruca._wire.names import check_label
from eruca.errors import InvalidName, TableFull

log = logging.getLogger(__name__)

_TABLE: Final = "KV config"
# What a key takes in the file besides its text: quotes, a colon, a comma, a line break and its indentation.
_ENTRY_BYTES: Final = 16


class KVConfigTable(JsonBody, kw_only=True):
    """The file: `{"configTable":{namespace:{key:value}}}`."""

    config_table: dict[str, dict[str, str]] = kept_dict()


class KVConfig:
    """The values in memory, and their file. A change returns once it is on disk."""

    def __init__(self, disk: FileSystem, path: Path, bytes_max: Callable[[], int] = lambda: KV_BYTES_MAX) -> None:
        """`bytes_max` returns the limit in force."""
        self._file = TableFile(disk, path, KVConfigTable)
        self._table: dict[str, dict[str, str]] = {}
        self._bytes = 0
        self._bytes_max = bytes_max
        show("kv_config_bytes", "Size of the key-value config.", self, lambda it: it._bytes)
        self._reporter = Reporter(log)
        self._saver = TableSaver()

    async def load(self) -> None:
        """Load the file; a missing one is empty, a damaged one is restored from its backup."""
        self._saver = TableSaver()
        self._saver.add(_TABLE, self._file, self._snapshot)
        self._table = (await asyncio.to_thread(self._file.load)).config_table
        self._bytes = sum(
            _weigh(namespace) + sum(_weigh(key) + _weigh(value) for key, value in values.items())
            for namespace, values in self._table.items()
        )

    def _snapshot(self) -> KVConfigTable:
        # A copy, because the loop may change the table while the thread writes it.
        return KVConfigTable(config_table={space: dict(values) for space, values in self._table.items()})

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        return self._table.get(namespace, {}).get(key)

    def list(self, namespace: str) -> KVTable | None:
        """Return all values of a namespace; None if it never had any."""
        values = self._table.get(namespace)
        return None if values is None else KVTable(table=values)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises InvalidName, or TableFull or TableUnsaved if it cannot be stored."""
        check_label("namespace", namespace)
        check_label("key", key)
        if len(value) > KV_VALUE_CHARS_MAX:
            raise InvalidName(f"the value of {key} has {len(value)} characters, the maximum is {KV_VALUE_CHARS_MAX}")
        values = self._table.get(namespace, {})
        before = values.get(key)
        grown = _weigh(value) - (_weigh(before) if before is not None else -_weigh(key))
        grown += 0 if namespace in self._table else _weigh(namespace)
        most = self._bytes_max()
        if grown > 0 and self._bytes + grown > most:
            count_refused("maxKVConfigBytes")
            text = f"KV config: {namespace} {key} cannot be set: {self._bytes} bytes are used (maxKVConfigBytes={most})"
            self._reporter.report("full", text)
            raise TableFull(text, hint="eruca nameserver kv delete removes a value")
        self._bytes += grown
        values[key] = value
        self._table[namespace] = values
        log.info("KV config: %s %s set", namespace, key)
        await self._save()

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value; a missing one is not an error."""
        before = self._table.get(namespace, {}).pop(key, None)
        if before is not None:
            self._bytes -= _weigh(key) + _weigh(before)
            log.info("KV config: %s %s deleted", namespace, key)
        await self._save()

    async def _save(self) -> None:
        self._saver.mark(_TABLE)
        await self._saver.wait_until_saved(_TABLE)

    async def close(self) -> None:
        """Wait until every change is on disk. Raises TableUnsaved if that fails."""
        await self._saver.close(everything=False)

    def log_all(self) -> None:
        """Log every value."""
        for namespace, values in self._table.items():
            for key, value in values.items():
                log.info("KV config: %s %s=%s", namespace, key, value)


def _weigh(text: str) -> int:
    """Return the maximum bytes of a text in the file."""
    return len(msgspec.json.encode(text)) + _ENTRY_BYTES
