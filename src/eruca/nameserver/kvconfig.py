"""Key-value config: strings by namespace and key, kept in one JSON file that Java's name server reads and writes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from eruca.store.filesystem import FileSystem
from eruca.store.tables import TableFile
from eruca.wire.bodies import JsonBody, KVTable
from eruca.wire.bodies.shared import kept_dict

log = logging.getLogger(__name__)

#: The namespace that tells ordered topics on which brokers they have how many queues.
ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"


class KVConfigTable(JsonBody, kw_only=True):
    """The file: `{"configTable":{namespace:{key:value}}}`."""

    config_table: dict[str, dict[str, str]] = kept_dict()


class KVConfig:
    """The values in memory, and their file. A change returns when the disk has it."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._file = TableFile(disk, path, KVConfigTable)
        self._table: dict[str, dict[str, str]] = {}
        self._writing = asyncio.Lock()
        # Changes made, and changes the file has: many that wait for the disk share one write.
        self._changes = 0
        self._saved = 0

    async def load(self) -> None:
        """Read the file; a missing one is empty, a damaged one is taken from its backup."""
        self._table = (await asyncio.to_thread(self._file.load)).config_table

    def get(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._table.get(namespace, {}).get(key)

    def list(self, namespace: str) -> KVTable | None:
        """All values of a namespace; None for one that never had any."""
        values = self._table.get(namespace)
        return None if values is None else KVTable(table=values)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        self._table.setdefault(namespace, {})[key] = value
        log.info("KV config: %s %s set", namespace, key)
        await self._save()

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value; one that is not there is fine."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            log.info("KV config: %s %s deleted", namespace, key)
        await self._save()

    async def _save(self) -> None:
        self._changes += 1
        mine = self._changes
        async with self._writing:
            if self._saved >= mine:
                return
            covers = self._changes
            # A copy, because the loop goes on changing the table while the thread writes it.
            copy = KVConfigTable(config_table={space: dict(values) for space, values in self._table.items()})
            await asyncio.to_thread(self._file.save, copy)
            self._saved = covers

    async def close(self) -> None:
        """Wait until the changes on their way are on the disk."""
        async with self._writing:  # first come, first served: those that wait already go first
            pass

    def log_all(self) -> None:
        """Write every value to the log."""
        for namespace, values in self._table.items():
            for key, value in values.items():
                log.info("KV config: %s %s=%s", namespace, key, value)
