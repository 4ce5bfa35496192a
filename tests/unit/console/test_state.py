"""The sqlite file: private, brought up to date step by step, refused if it is newer."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from eruca._console.state import Schema, State
from eruca.errors import ConfigError, StoreIOError

FIRST = Schema("notes", ("CREATE TABLE notes (text TEXT NOT NULL)",))
SECOND = Schema("notes", (*FIRST.steps, "ALTER TABLE notes ADD COLUMN author TEXT NOT NULL DEFAULT ''"))


async def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    old = State(tmp_path / "console", [FIRST])
    await old.open()
    await old.write("INSERT INTO notes VALUES (?)", "hello")
    await old.close()
    new = State(tmp_path / "console", [SECOND])
    await new.open()
    assert [tuple(row) for row in await new.read("SELECT text, author FROM notes")] == [("hello", "")]
    await new.close()
    await new.close()
    with pytest.raises(ConfigError, match="newer release"):
        await old.open()
    await old.close()


async def test_the_file_is_private(tmp_path: Path) -> None:
    state = State(tmp_path / "console", [FIRST])
    await state.open()
    await state.write("INSERT INTO notes VALUES (?)", "secret")
    modes = await asyncio.to_thread(read_modes, tmp_path / "console")
    await state.close()
    assert modes.pop("console") == 0o700
    assert set(modes.values()) == {0o600} and "console.db" in modes


def read_modes(folder: Path) -> dict[str, int]:
    """The modes of a folder and of what is in it."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}


async def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    state = State(tmp_path, [FIRST])
    await state.open()

    def fail(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO notes VALUES ('half')")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        await state.run(fail)
    assert await state.read("SELECT * FROM notes") == []
    with pytest.raises(StoreIOError, match="no such table"):
        await state.read("SELECT * FROM letters")
    await state.close()
    with pytest.raises(StoreIOError, match="closed"):
        await state.read("SELECT * FROM notes")
