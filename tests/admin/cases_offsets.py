"""Offsets: moved by time, by number, past the backlog, saved and restored, copied."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from eruca.admin import Moved
from eruca.errors import ConfigError, NoRoute
from tests.admin.stage import BROKER, Stage, covers, poll


async def _fill(stage: Stage, count: int = 10) -> str:
    """A topic with messages in two queues."""
    topic = await stage.create_topic()
    await stage.send(topic, count)
    return topic


async def _read(stage: Stage, group: str, topic: str) -> list[int]:
    return [row.offset for row in (await stage.admin.offsets.show(group, topic)).items]


def _tell(moved: Moved) -> list[tuple[int | None, int | None, str]]:
    return [(move.before, move.after, move.outcome) for move in moved.moves]


@covers("offsets.show", "offsets.reset", "offsets.skip", "offsets.restore")
async def case_by_time(stage: Stage) -> None:
    """To the first message, past the backlog, to a time, and back."""
    offsets, topic, group = stage.admin.offsets, await _fill(stage), stage.name("billing")
    ends = [queue.end for queue in (await stage.raw.topics.queues(topic)).items]
    planned = await offsets.reset(group, topic, "earliest", dry_run=True)
    assert _tell(planned) == [(None, 0, "planned")] * 2
    assert (await offsets.show(group)).items == []
    assert _tell(await offsets.reset(group, topic, "earliest")) == [(None, 0, "written")] * 2
    skipped = await offsets.skip(group, topic)
    assert _tell(skipped) == [(0, end, "written") for end in ends]
    assert _tell(await offsets.skip(group, topic, dry_run=True)) == [(end, end, "unchanged") for end in ends]
    await stage.undo(skipped)
    assert await _read(stage, group, topic) == [0, 0]
    times: dict[int, list[datetime]] = {}
    async for message in stage.raw.messages.read(topic):
        assert message.stored_at is not None
        times.setdefault(message.queue, []).append(message.stored_at)
    moment = times[0][3]
    await offsets.reset(group, topic, moment)
    assert await _read(stage, group, topic) == [sum(time < moment for time in times[queue]) for queue in (0, 1)]
    assert (await offsets.show(stage.name("nobody"))).items == []
    with pytest.raises(NoRoute):
        await offsets.reset(group, stage.name("nothing"), "latest")
    with pytest.raises(ConfigError, match="to="):
        await offsets.reset(group, topic, datetime(2026, 1, 1))
    future = await offsets.reset(group, topic, moment + timedelta(hours=1), dry_run=True)
    assert [move.after for move in future.moves] == ends


@covers("offsets.set", "offsets.shift", "offsets.reset", "offsets.show", "offsets.restore")
async def case_by_number(stage: Stage) -> None:
    """To an offset of one queue, and by some messages."""
    offsets, topic, group = stage.admin.offsets, await _fill(stage), stage.name("billing")
    await offsets.reset(group, topic, "earliest")
    assert _tell(await offsets.set(group, topic, BROKER, 1, 3, dry_run=True)) == [(0, 3, "planned")]
    moved = await offsets.set(group, topic, BROKER, 1, 3)
    assert _tell(moved) == [(0, 3, "written")]
    shifted = await offsets.shift(group, topic, 1)
    assert [move.after for move in shifted.moves] == [1, 4] == await _read(stage, group, topic)
    assert [move.after for move in (await offsets.shift(group, topic, -2, dry_run=True)).moves] == [0, 2]
    await stage.undo(shifted)
    await stage.undo(moved)
    assert await _read(stage, group, topic) == [0, 0]
    far = await offsets.set(group, topic, BROKER, 1, 1000)
    assert far.failed and "ranges from 0 to" in far.moves[0].reason
    with pytest.raises(NoRoute, match=f"no queue {BROKER}:7"):
        await offsets.set(group, topic, BROKER, 7, 0)
    strangers = await offsets.shift(stage.name("strangers"), topic, 1)
    assert {move.reason for move in strangers.moves} == {"the group has no offset in this queue"}


@covers("offsets.export", "offsets.restore", "offsets.clone", "offsets.show")
async def case_saved_and_copied(stage: Stage) -> None:
    """Written down, written back, to the same group or another; a clone."""
    offsets, topic, group = stage.admin.offsets, await _fill(stage), stage.name("billing")
    for queue, offset in ((0, 2), (1, 4)):
        await stage.raw.offsets.set(group, topic, BROKER, queue, offset)
    saved = await offsets.export(group, topic)
    assert [(each.topic, each.broker, each.queue, each.offset) for each in saved.offsets] == [
        (topic, BROKER, 0, 2),
        (topic, BROKER, 1, 4),
    ]
    assert (await offsets.restore(saved, group=stage.name("heirs"), dry_run=True)).moves[0].outcome == "planned"
    assert not (await offsets.restore(saved, group=stage.name("heirs"))).failed
    assert await _read(stage, stage.name("heirs"), topic) == [2, 4]
    planned = await offsets.clone(group, stage.name("audit"), topic, dry_run=True)
    assert _tell(planned) == [(None, 2, "planned"), (None, 4, "planned")]
    cloned = await offsets.clone(group, stage.name("audit"), topic)
    assert _tell(cloned) == [(None, 2, "written"), (None, 4, "written")]
    # All topics, when none is named.
    everywhere = await offsets.clone(group, stage.name("archive"))
    assert _tell(everywhere) == [(None, 2, "written"), (None, 4, "written")]
    with pytest.raises(NoRoute, match="has no offsets"):
        await offsets.clone(stage.name("nobody"), stage.name("audit"))
    with pytest.raises(NoRoute, match="eruca offset show"):
        await offsets.export(stage.name("nobody"))


@covers(
    "offsets.reset",
    "offsets.set",
    "offsets.shift",
    "offsets.restore",
    "offsets.clone",
    "offsets.export",
)
async def case_members_are_connected(stage: Stage) -> None:
    """They are told by time; what they would overwrite is refused."""
    offsets, topic, group = stage.admin.offsets, await _fill(stage), stage.name("billing")
    async with stage.member(group, topic):
        await poll(
            lambda: offsets.show(group, topic),
            lambda found: len(found.items) == 2 and all(row.lag == 0 for row in found.items),
        )
        told = await offsets.reset(group, topic, "earliest")
        assert [(move.after, move.outcome) for move in told.moves] == [(0, "told")] * 2
        saved = await offsets.export(group)
        refused = "1 connected member, which would overwrite the offsets"
        with pytest.raises(ConfigError, match=refused):
            await offsets.set(group, topic, BROKER, 0, 1)
        with pytest.raises(ConfigError, match=refused):
            await offsets.shift(group, topic, 1)
        with pytest.raises(ConfigError, match=refused):
            await offsets.restore(saved)
        with pytest.raises(ConfigError, match=refused):
            await offsets.clone(group, group)


@covers("offsets.progress", "offsets.show")
async def case_progress(stage: Stage) -> None:
    """The same rows as `show` has, and how fast the group is."""
    offsets, topic, group = stage.admin.offsets, await _fill(stage), stage.name("billing")
    assert (await offsets.progress(group)).queues.items == []
    await stage.raw.offsets.reset(group, topic, "earliest")
    progress = await offsets.progress(group, topic)
    assert progress.queues == await offsets.show(group, topic) and len(progress.queues.items) == 2
    assert progress.rate == 0  # nobody consumes
    first = await offsets.progress(group, limit=1)
    assert first.queues.cut and first.queues.items == progress.queues.items[:1]
