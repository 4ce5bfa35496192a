"""resetOffsetByTime, skipAccumulatedMessage, cloneGroupOffset."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from eruca._admin.moving import Move, Moved
from eruca._cli.mqadmin.call import ALL, Call
from eruca._cli.mqadmin.javatext import cut, parse_java_time, show_bool, to_ms
from eruca.errors import NoRoute

# The end of each queue, by broker and number.
Ends = dict[tuple[str, int], int]


async def reset_by_time(call: Call) -> None:
    """Move a group to the messages that were stored at a time."""
    line, group, topic = call.line, call.line.text("g"), call.line.text("t")
    text, force = line.text("s"), line.is_true("f", True)
    to: datetime | Literal["latest"] = "latest" if text == "now" else parse_java_time("-s", text)
    number = -1 if isinstance(to, str) else to_ms(to)
    ends = await _find_ends(call, group, topic)
    moved = await call.admin.offsets.reset(group, topic, to, force=force)
    who = "group" if _has_members(moved) else "consumerGroup"
    call.out.say(
        "rollback consumer offset by specified %s[%s], topic[%s], force[%s], timestamp(string)[%s],"
        " timestamp(long)[%s]",
        *(who, group, topic, show_bool(force), text, number),
    )
    await _show_moved(call, moved, to, ends)


async def skip_accumulated(call: Call) -> None:
    """Move a group past all messages that it has not consumed."""
    group, topic = call.line.text("g"), call.line.text("t")
    ends = await _find_ends(call, group, topic)
    moved = await call.admin.offsets.reset(group, topic, "latest", force=call.line.is_true("f", True))
    await _show_moved(call, moved, "latest", ends)


async def _find_ends(call: Call, group: str, topic: str) -> Ends:
    """Return the ends of a topic's queues.

    Raises NoRoute for a group without offsets: `eruca offset reset` would create some, mqadmin does not.
    """
    queues = call.take(await call.admin.topics.queues(topic, limit=ALL))
    if not (await call.admin.offsets.show(group, topic)).items:
        raise NoRoute(
            f"group {group} has no offsets in topic {topic}",
            hint=f"eruca offset reset {group} {topic} --to TIME writes the first ones",
        )
    return {(row.broker, row.queue): row.end for row in queues}


def _has_members(moved: Moved) -> bool:
    return any(move.outcome == "told" for move in moved.moves)


async def _show_moved(call: Call, moved: Moved, to: datetime | Literal["latest"], ends: Ends) -> None:
    """Print the new offset of each queue; if no member is connected, more, as Java does."""
    done = [move for move in moved.moves if move.outcome != "failed"]
    if _has_members(moved):
        show = call.out.table("%-40s  %-40s  %-40s", "brokerName", "queueId", "offset")
        for move in done:
            show(cut(move.broker, 32), move.queue, move.after)
    elif done:
        heads = ("brokerName", "queueId", "brokerOffset", "consumerOffset", "timestampOffset", "rollbackOffset")
        show = call.out.table("%-20s  %-20s  %-20s  %-20s  %-20s  %-20s", *heads)
        for move in done:
            end = ends.get((move.broker, move.queue), 0)
            place = (move.topic, move.broker, move.queue)
            wanted = end if to == "latest" else await call.admin.messages.offset_at(*place, to)
            show(cut(move.broker, 32), move.queue, end, _before(move), wanted, move.after)
    report_failed(call, moved.moves)


def _before(move: Move) -> int:
    return 0 if move.before is None else move.before


def report_failed(call: Call, moves: Iterable[Move]) -> None:
    """Report the queues in which a group was not moved."""
    for move in moves:
        if move.outcome == "failed":
            call.out.fail(f"{move.topic}, broker {move.broker}, queue {move.queue}: {move.reason}")


async def clone(call: Call) -> None:
    """Copy the offsets of a group in a topic to another group."""
    source, target, topic = call.line.text("s"), call.line.text("d"), call.line.text("t")
    moved = await call.admin.offsets.clone(source, target, topic)
    report_failed(call, moved.moves)
    if not moved.failed:
        call.out.say("clone group offset success. srcGroup[%s], destGroup=[%s], topic[%s]", source, target, topic)
