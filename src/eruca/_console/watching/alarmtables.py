"""The tables of alarms: rules, channels, alarms that have fired, and deliveries."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from eruca._console.state import Schema, State
from eruca._console.watching.alarms import Alarm, AlarmState
from eruca._console.watching.channels import Channel, ChannelKind, check_target
from eruca._console.watching.rules import Rule
from eruca.errors import ConfigError

_RULES_MAX: Final = 500
_CHANNELS_MAX: Final = 100
# Resolved alarms that are kept.
_RESOLVED_KEPT: Final = 5_000
_NAME_CHARS_MAX: Final = 100
_SECRET_CHARS_MAX: Final = 200

SCHEMA: Final = Schema(
    "alarms",
    (
        "CREATE TABLE rules (id INTEGER PRIMARY KEY AUTOINCREMENT, rule BLOB NOT NULL)",
        """
        CREATE TABLE channels (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
            target TEXT NOT NULL, secret TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE alarms (
            id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, state TEXT NOT NULL, alarm BLOB NOT NULL
        )
        """,
        "CREATE INDEX alarms_by_state ON alarms (state, id)",
        """
        CREATE TABLE deliveries (
            id INTEGER PRIMARY KEY AUTOINCREMENT, channel INTEGER NOT NULL, state TEXT NOT NULL,
            made_at INTEGER NOT NULL, due_at INTEGER NOT NULL, tries INTEGER NOT NULL, error TEXT NOT NULL,
            report BLOB NOT NULL
        )
        """,
        "CREATE INDEX deliveries_by_state ON deliveries (state, due_at)",
    ),
)


class AlarmTables:
    """Rules, channels and alarms."""

    def __init__(self, state: State) -> None:
        self._state = state

    # -- rules -------------------------------------------------------------------------------------------------------

    async def list_rules(self) -> list[Rule]:
        """Return all rules."""
        rows = await self._state.read("SELECT id, rule FROM rules ORDER BY id")
        return [msgspec.structs.replace(msgspec.json.decode(row["rule"], type=Rule), id=row["id"]) for row in rows]

    async def put_rule(self, rule: Rule) -> Rule:
        """Store a rule: a new one with id 0, or a changed one. Raises ConfigError."""
        check_rule(rule)

        def put(db: sqlite3.Connection) -> int:
            if rule.id:
                db.execute("UPDATE rules SET rule = ? WHERE id = ?", (msgspec.json.encode(rule), rule.id))
                return rule.id
            if _count(db, "rules") >= _RULES_MAX:
                raise ConfigError(f"there are {_RULES_MAX} rules, which is the maximum", hint="delete one")
            made = db.execute("INSERT INTO rules (rule) VALUES (?)", (msgspec.json.encode(rule),))
            assert made.lastrowid is not None
            return made.lastrowid

        return msgspec.structs.replace(rule, id=await self._state.run(put))

    async def delete_rule(self, rule_id: int) -> None:
        """Delete a rule; its alarms end at the next look."""
        await self._state.write("DELETE FROM rules WHERE id = ?", rule_id)

    # -- channels ----------------------------------------------------------------------------------------------------

    async def list_channels(self) -> list[Channel]:
        """Return all channels."""
        rows = await self._state.read("SELECT id, name, kind, target, secret FROM channels ORDER BY name")
        return [
            Channel(
                id=row["id"],
                name=row["name"],
                kind=ChannelKind(row["kind"]),
                target=row["target"],
                secret=row["secret"],
            )
            for row in rows
        ]

    async def find_channel(self, channel_id: int) -> Channel | None:
        """Return a channel; None if there is none."""
        return next((each for each in await self.list_channels() if each.id == channel_id), None)

    async def add_channel(self, name: str, kind: ChannelKind, target: str, secret: str) -> Channel:
        """Store a new channel. Raises ConfigError."""
        target = check_target(kind, target)
        check_name(name)
        if len(secret) > _SECRET_CHARS_MAX:
            raise ConfigError(f"the secret has {len(secret)} characters: the maximum is {_SECRET_CHARS_MAX}")

        def add(db: sqlite3.Connection) -> int:
            if _count(db, "channels") >= _CHANNELS_MAX:
                raise ConfigError(f"there are {_CHANNELS_MAX} channels, which is the maximum", hint="delete one")
            if db.execute("SELECT 1 FROM channels WHERE name = ?", (name,)).fetchone() is not None:
                raise ConfigError(f"there is a channel {name}", hint="choose another name")
            values = (name, kind.value, target, secret)
            made = db.execute("INSERT INTO channels (name, kind, target, secret) VALUES (?, ?, ?, ?)", values)
            assert made.lastrowid is not None
            return made.lastrowid

        return Channel(id=await self._state.run(add), name=name, kind=kind, target=target, secret=secret)

    async def delete_channel(self, channel_id: int) -> None:
        """Delete a channel with what is to be delivered to it."""

        def delete(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM channels WHERE id = ?", (channel_id,))
            db.execute("DELETE FROM deliveries WHERE channel = ?", (channel_id,))

        await self._state.run(delete)

    # -- alarms ------------------------------------------------------------------------------------------------------

    async def load_open(self) -> tuple[list[Alarm], int]:
        """Return the alarms that are not resolved, and the next id."""
        rows = await self._state.read("SELECT alarm FROM alarms WHERE state <> ?", AlarmState.RESOLVED.value)
        last = await self._state.read("SELECT max(id) FROM alarms")
        return [_decode(row["alarm"]) for row in rows], (last[0][0] or 0) + 1

    async def store(self, alarms: Sequence[Alarm]) -> None:
        """Store alarms, new or changed."""

        def store(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT OR REPLACE INTO alarms VALUES (?, ?, ?, ?)",
                [(each.id, each.cluster, each.state.value, msgspec.json.encode(each)) for each in alarms],
            )
            db.execute(
                "DELETE FROM alarms WHERE state = ? AND id <="
                " (SELECT id FROM alarms WHERE state = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (AlarmState.RESOLVED.value, AlarmState.RESOLVED.value, _RESOLVED_KEPT),
            )

        await self._state.run(store)

    async def list_past(self, cluster: str, limit: int) -> tuple[list[Alarm], bool]:
        """Return the resolved alarms of a cluster, the newest first, and whether there are more."""
        rows = await self._state.read(
            "SELECT alarm FROM alarms WHERE state = ? AND cluster = ? ORDER BY id DESC LIMIT ?",
            AlarmState.RESOLVED.value,
            cluster,
            limit + 1,
        )
        return [_decode(row["alarm"]) for row in rows[:limit]], len(rows) > limit


def check_rule(rule: Rule) -> None:
    """Raise ConfigError for a rule that makes no sense."""
    check_name(rule.name)
    if not 0 < rule.threshold <= 1e15:
        raise ConfigError(f"threshold {rule.threshold:g}: expected a number above 0")
    if not 0 <= rule.duration <= 86_400:
        raise ConfigError(f"duration {rule.duration:g} s: expected at most a day")
    if len(rule.prefix) > 255:
        raise ConfigError("the prefix is longer than 255 characters")


def check_name(name: str) -> None:
    """Raise ConfigError for a name that cannot be shown in one line."""
    if not name.strip() or len(name) > _NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(f"a name has 1 to {_NAME_CHARS_MAX} printable characters")


def _decode(data: bytes) -> Alarm:
    return msgspec.json.decode(data, type=Alarm)


def _count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
