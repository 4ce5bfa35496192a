"""The audit log: what is kept, for how long, and that it cannot be changed."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from eruca._console.identity.audit import AuditFilter
from eruca._console.identity.identity import Identity
from eruca._console.state import State
from eruca._ground import limits
from eruca._testing.clock import VirtualClock
from eruca.errors import StoreIOError

DAY_MS = 86_400_000
ALL = AuditFilter()


async def add(identity: Identity, target: str = "orders", **more: object) -> None:
    facts = {"user": "ann", "action": "topic.create", "target": target, "outcome": "done", **more}
    await identity.audit.add(**facts)  # type: ignore[arg-type]


async def test_a_row_has_who_when_what_before_and_after(identity: Identity, clock: VirtualClock) -> None:
    await add(
        identity,
        cluster="paris",
        command="eruca topic create orders",
        before={"queues": 4},
        after={"queues": 8, "kept": timedelta(hours=1)},
        address="10.0.0.1",
    )
    [row] = await identity.audit.list(ALL, limit=10)
    assert (row.user, row.action, row.target, row.cluster) == ("ann", "topic.create", "orders", "paris")
    assert (row.command, row.address, row.outcome) == ("eruca topic create orders", "10.0.0.1", "done")
    assert json.loads(row.before) == {"queues": 4} and json.loads(row.after) == {"queues": 8, "kept": 3600.0}
    assert row.at is not None and round(row.at.timestamp() * 1000) == clock.now_ms()


async def test_secrets_are_replaced_and_texts_are_cut(identity: Identity) -> None:
    await add(
        identity,
        target="t" * 10_000,
        after={"secretKey": "hidden-1", "url": "http://user:hidden-2@host/", "text": "x" * 100_000},
        reason="http://user:hidden-3@host/",
    )
    [row] = await identity.audit.list(ALL, limit=10)
    assert "hidden" not in repr(row) and "***" in row.after
    assert len(row.target) == 512 and len(row.after) < limits.CONSOLE_AUDIT_TEXT_MAX + 100


async def test_rows_are_found_latest_first(identity: Identity, clock: VirtualClock) -> None:
    for number in range(5):
        await add(identity, target=f"topic-{number}", user="ann" if number % 2 else "bob", cluster=f"c{number % 2}")
        clock.advance(1000)

    async def find(**wanted: object) -> list[str]:
        rows = await identity.audit.list(AuditFilter(**wanted), limit=10)  # type: ignore[arg-type]
        assert await identity.audit.count(AuditFilter(**wanted)) == len(rows)  # type: ignore[arg-type]
        return [row.target[-1] for row in rows]

    assert await find() == ["4", "3", "2", "1", "0"]
    assert await find(user="ann") == ["3", "1"]
    assert await find(cluster="c0") == ["4", "2", "0"]
    assert await find(text="TOPIC-3") == ["3"] and await find(text="%") == [] and await find(text="' OR 1=1") == []
    third = (await identity.audit.list(ALL, limit=3))[2].at
    assert await find(after=third) == ["4", "3", "2"] and await find(before=third) == ["1", "0"]
    assert [row.target[-1] for row in await identity.audit.list(ALL, limit=2, offset=1)] == ["3", "2"]


async def test_rows_expire_by_age(identity: Identity, clock: VirtualClock) -> None:
    await add(identity, target="old")
    clock.advance(400 * DAY_MS)
    for _ in range(256):
        await add(identity)
    assert await identity.audit.count(AuditFilter(text="old")) == 1
    clock.advance(1)
    for _ in range(256):
        await add(identity)
    assert await identity.audit.count(AuditFilter(text="old")) == 0
    assert await identity.audit.count(ALL) == 512


async def test_rows_are_bounded_in_number(identity: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSOLE_AUDIT_ROWS_MAX", 10)
    for number in range(257):
        await add(identity, target=f"t{number}")
    rows = await identity.audit.list(ALL, limit=300)
    assert [row.target for row in rows] == [f"t{number}" for number in range(256, 246, -1)]


async def test_a_row_never_changes(identity: Identity, state: State) -> None:
    await add(identity)
    with pytest.raises(StoreIOError, match="append-only"):
        await state.write("UPDATE audit SET user = 'bob'")
    # What there is to call adds and reads.
    assert {name for name in dir(identity.audit) if not name.startswith("_")} == {"add", "list", "count"}
