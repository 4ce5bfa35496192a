"""The history of a cluster: lag and rates of groups, rates and disks of brokers, in three resolutions.

A look is stored in its own row and added to the row of its 5 minutes and of its hour, so nothing has to be gone
through later. Of a group for which nothing waits and nothing happens there is no row: `looks` tells when somebody
looked, and a look without a row was a zero.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from eruca._console.state import Schema, State
from eruca._console.watching.samples import Sample
from eruca._console.watching.sampling import is_lively
from eruca._ground.times import from_epoch_ms

#: The resolutions in seconds (0: every look) and for how long they are kept.
KEPT: Final = {0: timedelta(hours=3), 300: timedelta(days=2), 3600: timedelta(days=30)}
# Rows of one look: those of the groups that are furthest behind.
_ROWS_MAX: Final = 5_000
# Rows of a resolution are deleted a few at a time, so that no look waits for it.
_DELETED_MAX: Final = 20_000

GROUP: Final = "group"
BROKER: Final = "broker"

SCHEMA: Final = Schema(
    "history",
    (
        """
        CREATE TABLE series (
            id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
            UNIQUE (cluster, kind, name)
        )
        """,
        """
        CREATE TABLE points (
            series INTEGER NOT NULL, step INTEGER NOT NULL, at INTEGER NOT NULL,
            lag REAL NOT NULL, age REAL, incoming REAL NOT NULL, outgoing REAL NOT NULL,
            PRIMARY KEY (series, step, at)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX points_by_time ON points (step, at)",
        """
        CREATE TABLE looks (
            cluster TEXT NOT NULL, step INTEGER NOT NULL, at INTEGER NOT NULL, count INTEGER NOT NULL,
            PRIMARY KEY (cluster, step, at)
        ) WITHOUT ROWID
        """,
    ),
)

_LOOK = """
    INSERT INTO looks VALUES (?, ?, ?, 1) ON CONFLICT (cluster, step, at) DO UPDATE SET count = count + 1
"""
# Of lag and age the highest counts, of rates the sum, which is divided by the number of looks.
_POINT = """
    INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (series, step, at) DO UPDATE SET
        lag = max(lag, excluded.lag),
        age = CASE WHEN age IS NULL OR excluded.age > age THEN excluded.age ELSE age END,
        incoming = incoming + excluded.incoming,
        outgoing = outgoing + excluded.outgoing
"""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A group or a broker at one time. For a broker `lag` is how full its disk is, in percent."""

    at: datetime
    lag: float
    # In seconds; None if nothing waited, or it is unknown.
    age: float | None
    # Messages per second.
    incoming: float
    outgoing: float


class History:
    """Stores samples and returns series of points."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def add(self, sample: Sample) -> None:
        """Store one look; a gap is left where a broker was silent, because its groups would seem to have no backlog."""
        if sample.groups_known:
            await self._state.run(lambda db: _add(db, sample))

    async def read(self, cluster: str, kind: str, name: str, since: datetime, until: datetime) -> list[Point]:
        """Return the points of one group or broker, in the finest resolution that is kept for that long."""
        found = await self._read(cluster, kind, [name], since, until)
        return found[name]

    async def read_many(
        self, cluster: str, kind: str, names: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, list[Point]]:
        """Return the points of several groups or brokers, for small charts."""
        return await self._read(cluster, kind, names, since, until)

    async def _read(
        self, cluster: str, kind: str, names: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, list[Point]]:
        step = choose_step(since, until)
        first, last = _to_ms(since), _to_ms(until)
        return await self._state.run(lambda db: _read(db, cluster, kind, names, step, first, last))

    async def prune(self, now: datetime) -> int:
        """Delete what is older than it is kept, some of it; returns how many rows."""
        return await self._state.run(lambda db: _prune(db, now))


def choose_step(since: datetime, until: datetime) -> int:
    """Return the finest resolution that is kept for a span, and whose points a chart can show."""
    span = until - since
    return next((step for step, kept in KEPT.items() if span <= kept), list(KEPT)[-1])


def _to_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _begin(at_ms: int, step: int) -> int:
    return at_ms if not step else at_ms - at_ms % (step * 1000)


def _add(db: sqlite3.Connection, sample: Sample) -> None:
    at_ms = _to_ms(sample.at)
    groups = sorted(filter(is_lively, sample.groups.values()), key=lambda each: -each.lag)[:_ROWS_MAX]
    rows: list[tuple[str, str, float, float | None, float, float]] = [
        (GROUP, each.group, each.lag, each.age, each.incoming or 0.0, each.outgoing or 0.0) for each in groups
    ]
    rows += [
        (BROKER, each.broker, 100 * (each.disk or 0.0), None, each.incoming or 0.0, each.outgoing or 0.0)
        for each in sample.brokers
        if each.gone_since is None
    ]
    ids = [_find_series(db, sample.cluster, kind, name) for kind, name, *_ in rows]
    for step in KEPT:
        begin = _begin(at_ms, step)
        db.execute(_LOOK, (sample.cluster, step, begin))
        db.executemany(_POINT, [(series, step, begin, *row[2:]) for series, row in zip(ids, rows, strict=True)])


def _find_series(db: sqlite3.Connection, cluster: str, kind: str, name: str) -> int:
    query = "SELECT id FROM series WHERE cluster = ? AND kind = ? AND name = ?"
    found = db.execute(query, (cluster, kind, name)).fetchone()
    if found is not None:
        return int(found[0])
    made = db.execute("INSERT INTO series (cluster, kind, name) VALUES (?, ?, ?)", (cluster, kind, name))
    assert made.lastrowid is not None
    return made.lastrowid


def _read(
    db: sqlite3.Connection, cluster: str, kind: str, names: Iterable[str], step: int, first: int, last: int
) -> dict[str, list[Point]]:
    query = "SELECT at, count FROM looks WHERE cluster = ? AND step = ? AND at BETWEEN ? AND ? ORDER BY at"
    looks = db.execute(query, (cluster, step, _begin(first, step), last)).fetchall()
    found = {}
    for name in names:
        rows = db.execute(
            "SELECT at, lag, age, incoming, outgoing FROM points WHERE step = ? AND at BETWEEN ? AND ?"
            " AND series = (SELECT id FROM series WHERE cluster = ? AND kind = ? AND name = ?)",
            (step, _begin(first, step), last, cluster, kind, name),
        )
        found[name] = _fill({row[0]: row for row in rows}, looks)
    return found


def _fill(rows: dict[int, sqlite3.Row], looks: Iterable[sqlite3.Row]) -> list[Point]:
    """Return a point for each look; those without a row were zero."""
    points = []
    for at_ms, count in looks:
        at = from_epoch_ms(at_ms)
        assert at is not None
        row = rows.get(at_ms)
        if row is None:
            points.append(Point(at=at, lag=0.0, age=None, incoming=0.0, outgoing=0.0))
        else:
            points.append(Point(at=at, lag=row[1], age=row[2], incoming=row[3] / count, outgoing=row[4] / count))
    return points


def _prune(db: sqlite3.Connection, now: datetime) -> int:
    deleted = 0
    for step, kept in KEPT.items():
        before = _to_ms(now - kept)
        deleted += db.execute(
            "DELETE FROM points WHERE (series, step, at) IN"
            " (SELECT series, step, at FROM points WHERE step = ? AND at < ? LIMIT ?)",
            (step, before, _DELETED_MAX),
        ).rowcount
        deleted += db.execute("DELETE FROM looks WHERE step = ? AND at < ?", (step, before)).rowcount
    if not deleted:
        db.execute("DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM points WHERE points.series = series.id)")
    return deleted
