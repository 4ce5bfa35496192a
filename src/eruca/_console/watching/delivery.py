"""Delivering reports to channels: stored first, tried again after failures, with the outcome of each."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from eruca._console.state import State
from eruca._console.watching.alarmtables import AlarmTables
from eruca._console.watching.channels import Channel, ChannelKind, make_mail
from eruca._console.watching.mails import Mailer
from eruca._console.watching.options import WatchingOptions
from eruca._console.watching.targets import Targets
from eruca._console.watching.webhooks import Poster
from eruca._ground.backoff import Backoff
from eruca._ground.repeating import Repeating
from eruca._ground.several import run_some
from eruca._ground.times import from_epoch_ms
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

_PAUSES: Final = Backoff(5.0, 900.0)
#: Tries of one delivery: with these pauses, about two hours.
TRIES_MAX: Final = 14
_AT_ONCE: Final = 4
_BATCH: Final = 100
# Deliveries that wait; more are refused, because their channel has not worked for a long time.
_WAITING_MAX: Final = 10_000
_KEPT: Final = 1_000
_IDLE_S: Final = 60.0


class DeliveryState(StrEnum):
    """What became of a delivery."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One report to one channel."""

    id: int
    channel: int
    state: DeliveryState
    made_at: datetime | None
    tries: int
    # Why the last try failed.
    error: str
    event: str


class Deliveries:
    """Delivers reports."""

    def __init__(
        self,
        state: State,
        tables: AlarmTables,
        options: WatchingOptions,
        *,
        pauses: Backoff = _PAUSES,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Raises ConfigError."""
        self._state = state
        self._tables = tables
        self._options = options
        self._pauses = pauses
        self._now = now
        self._poster = Poster(Targets(options.webhook_targets))
        self.mailer = Mailer(options)
        self._repeating = Repeating("delivering alarms", self._run, lambda: _IDLE_S, at_once=True)

    def start(self) -> None:
        """Start; what was not delivered when the console ended is delivered now."""
        self._repeating.start()

    async def stop(self) -> None:
        """Stop; a delivery under way is repeated after the next start."""
        await self._repeating.stop()

    async def add(self, channels: Sequence[int], report: dict[str, Any]) -> None:
        """Store a report for some channels, and deliver it soon."""
        body, now_ms = msgspec.json.encode(report), self._now_ms()

        def add(db: sqlite3.Connection) -> int:
            known = {row[0] for row in db.execute("SELECT id FROM channels")}
            waiting = db.execute("SELECT count(*) FROM deliveries WHERE state = 'waiting'").fetchone()[0]
            wanted = [each for each in dict.fromkeys(channels) if each in known][: max(0, _WAITING_MAX - waiting)]
            db.executemany(
                "INSERT INTO deliveries (channel, state, made_at, due_at, tries, error, report)"
                " VALUES (?, 'waiting', ?, ?, 0, '', ?)",
                [(channel, now_ms, now_ms, body) for channel in wanted],
            )
            db.execute(
                "DELETE FROM deliveries WHERE state <> 'waiting' AND id <="
                " (SELECT id FROM deliveries WHERE state <> 'waiting' ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (_KEPT,),
            )
            return len(wanted)

        if await self._state.run(add):
            self._repeating.wake()

    async def list(self, limit: int) -> list[Delivery]:
        """Return the last deliveries, the newest first."""
        rows = await self._state.read("SELECT * FROM deliveries ORDER BY id DESC LIMIT ?", limit)
        return [
            Delivery(
                id=row["id"],
                channel=row["channel"],
                state=DeliveryState(row["state"]),
                made_at=from_epoch_ms(row["made_at"]),
                tries=row["tries"],
                error=row["error"],
                event=str(msgspec.json.decode(row["report"]).get("event", "")),
            )
            for row in rows
        ]

    async def send(self, channel: Channel, report: dict[str, Any], number: int) -> None:
        """Deliver a report now. Raises ErucaError."""
        body = msgspec.json.encode(report)
        if channel.kind is ChannelKind.WEBHOOK:
            await self._poster.post(channel.target, channel.secret, body, self._now_ms() // 1000, number)
        else:
            await self.mailer.send(make_mail(report, self._options.mail_from, channel.target, number))

    def _now_ms(self) -> int:
        return round(self._now().timestamp() * 1000)

    async def _run(self) -> float:
        """Deliver what is due; return the seconds until the next is."""
        due = await self._state.read(
            "SELECT id, channel, tries, report FROM deliveries WHERE state = 'waiting' AND due_at <= ? ORDER BY due_at"
            " LIMIT ?",
            self._now_ms(),
            _BATCH,
        )
        channels = {channel.id: channel for channel in await self._tables.list_channels()}
        works = [
            lambda row=row: self._try(channels.get(row["channel"]), row["id"], row["tries"], row["report"])
            for row in due
        ]
        await run_some(works, _AT_ONCE)
        rows = await self._state.read("SELECT min(due_at) FROM deliveries WHERE state = 'waiting'")
        next_ms: int | None = rows[0][0]
        return _IDLE_S if next_ms is None else min(_IDLE_S, max(0.0, (next_ms - self._now_ms()) / 1000))

    async def _try(self, channel: Channel | None, number: int, tries: int, report: bytes) -> None:
        error = ""
        try:
            if channel is None:
                error = "the channel was deleted"
            else:
                await self.send(channel, msgspec.json.decode(report), number)
        except ErucaError as failure:
            error = str(failure)
        except asyncio.CancelledError:
            raise
        except Exception as failure:
            # One report that cannot be sent must not hold up the others.
            log.exception("delivery %d failed", number)
            error = repr(failure)
        tries += 1
        state, due_at = DeliveryState.DELIVERED, self._now_ms()
        if error:
            is_last = channel is None or tries >= TRIES_MAX
            state = DeliveryState.FAILED if is_last else DeliveryState.WAITING
            due_at += round(1000 * self._pauses.after(tries))
            log.warning("delivery %d to %r failed, try %d: %s", number, channel, tries, error)
        await self._state.write(
            "UPDATE deliveries SET state = ?, due_at = ?, tries = ?, error = ? WHERE id = ?",
            state.value,
            due_at,
            tries,
            error[:500],
            number,
        )
