"""What the console keeps: one sqlite file with users, sessions, audit log, favourites, rules and history.

Each subject declares its tables as a `Schema`, a list of steps; a step is never edited once it was released, a new one
is added. One thread uses the file, so a slow disk holds up no page that does not need it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from eruca._ground.smallfiles import make_directories, open_private
from eruca.errors import ConfigError, StoreIOError

_FILE = "console.db"
_BUSY_S = 5.0

Answer = TypeVar("Answer")
Row: TypeAlias = sqlite3.Row


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one subject, as steps that are carried out once each, in order."""

    name: str
    steps: tuple[str, ...]


class State:
    """The sqlite file. `read` and `write` run single statements, `run` several as one transaction."""

    def __init__(self, directory: Path, schemas: Sequence[Schema]) -> None:
        self.directory = directory
        self._schemas = schemas
        self._thread: ThreadPoolExecutor | None = None
        self._db: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file and bring its tables up to date. Raises ConfigError for one of a newer release."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-state")
        await self._in_thread(self._open)

    async def close(self) -> None:
        """Close the file. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        await asyncio.get_running_loop().run_in_executor(thread, self._close)
        thread.shutdown(wait=False)

    async def read(self, statement: str, *values: Any) -> list[Row]:
        """Return the rows of a query."""
        return await self.run(lambda db: db.execute(statement, values).fetchall())

    async def write(self, statement: str, *values: Any) -> int:
        """Carry out one statement; returns how many rows it changed."""
        return await self.run(lambda db: db.execute(statement, values).rowcount)

    async def run(self, work: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Carry out several statements as one transaction: all of them, or none if one fails."""

        def transact() -> Answer:
            assert self._db is not None
            with self._db:
                return work(self._db)

        return await self._in_thread(transact)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        if self._thread is None:
            raise StoreIOError("the console's file is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError) as error:
            raise StoreIOError(f"{self.directory / _FILE}: {error}", hint="see the disk and its permissions") from error

    def _open(self) -> None:
        make_directories(self.directory)
        path = self.directory / _FILE
        os.close(open_private(str(path), os.O_RDWR | os.O_CREAT))
        db = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
        self._db = db
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        with db:
            db.execute("CREATE TABLE IF NOT EXISTS schema (name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        for schema in self._schemas:
            self._update(db, schema)

    def _update(self, db: sqlite3.Connection, schema: Schema) -> None:
        row = db.execute("SELECT version FROM schema WHERE name = ?", (schema.name,)).fetchone()
        version = 0 if row is None else int(row["version"])
        if version > len(schema.steps):
            raise ConfigError(
                f"{self.directory / _FILE} was written by a newer release of Eruca",
                hint="start that release, or choose another consoleDirectory",
            )
        for number, step in enumerate(schema.steps[version:], version + 1):
            with db:
                db.execute(step)
                db.execute("INSERT OR REPLACE INTO schema VALUES (?, ?)", (schema.name, number))

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()
