"""queryMsgById, queryMsgByKey, queryMsgByUniqueKey, queryMsgByOffset, queryMsgTraceById, queryCq."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from eruca._admin.messages import Consumed, QueueRow
from eruca._admin.storedmessages import StoredMessage
from eruca._admin.tracing import TraceRow, Track
from eruca._cli.mqadmin.call import ALL, Call
from eruca._cli.mqadmin.javatext import show_bool, show_json, show_map, show_receipt, show_time, show_time_ms
from eruca._cli.mqadmin.running import name_file
from eruca._ground.smallfiles import make_directories, write_file
from eruca._wire.codes import ResponseCode
from eruca._wire.properties import KEYS, MAX_OFFSET, MIN_OFFSET, RESERVED, TAGS
from eruca.errors import ConfigError, ErucaError, NoRoute

# How many messages mqadmin asks for.
_BY_ID_MAX = 32
_BY_KEY_MAX = 64
_OUTCOMES = {
    "consumed": "CONSUMED",
    "filtered": "CONSUMED_BUT_FILTERED",
    "pull": "PULL",
    "waiting": "NOT_CONSUME_YET",
}
_RULE = "=" * 38

# --- one message ----------------------------------------------------------------------------------------------------


async def query_by_id(call: Call) -> None:
    """Show messages by their offset ids; have a client consume them, or send them again."""
    ids = [each.strip() for each in call.line.text("i").split(",") if each.strip()]
    if call.line.has("g") and call.line.has("d"):
        for offset_id in ids:
            await _push(call, offset_id)
    elif call.line.has("s"):
        for offset_id in ids if call.line.is_true("s") else []:
            await _send_again(call, offset_id)
    else:
        for offset_id in ids:
            await _show(call, await call.admin.messages.view(offset_id))


async def query_by_unique_key(call: Call) -> None:
    """Show the first message with the id its producer chose, or all of them; or have a client consume it."""
    topic, message_id = call.line.text("t"), call.line.text("i")
    found = call.take(await call.admin.messages.find(topic, message_id, limit=_BY_ID_MAX))
    if not found:
        raise NoRoute(f"topic {topic} has no message {message_id}", hint="retention may have deleted it")
    if call.line.has("g") and call.line.has("d"):
        await _push(call, found[0].offset_id)
        return
    for index, message in enumerate(found if call.line.has("a") else found[:1]):
        await _show(call, message, with_id=False, index=index)


async def query_by_offset(call: Call) -> None:
    """Show the message at an offset of a queue."""
    line, topic = call.line, call.line.text("t")
    broker, queue = line.text("b"), line.number("i")
    message = await call.admin.messages.at(topic, broker, queue, line.number("o"))
    ends = call.take(await call.admin.topics.queues(topic, limit=ALL))
    # Java's client adds the ends of the queue to each message that it pulls.
    added = {
        name: str(value)
        for row in ends
        if (row.broker, row.queue) == (broker, queue)
        for name, value in ((MIN_OFFSET, row.begin), (MAX_OFFSET, row.end))
    }
    await _show(call, replace(message, properties=message.properties | added))


async def query_by_key(call: Call) -> None:
    """List the messages with a key."""
    topic, key = call.line.text("t"), call.line.text("k")
    found = await call.admin.messages.find_by_key(topic, key, limit=_BY_KEY_MAX)
    if not found.items:
        raise NoRoute(f"topic {topic} has no message with the key {key}", hint="retention may have deleted it")
    show = call.out.table("%-50s %4s %40s", "Message ID", "QID", "Offset")
    for message in found.items:  # mqadmin does not mention that there are more either
        show(message.message_id, message.queue, message.offset)


async def _push(call: Call, offset_id: str) -> None:
    consumed = await call.admin.messages.consume_directly(offset_id, call.line.text("g"), call.line.text("d"))
    if consumed is not None:
        call.out.say("%s", _show_consumed(consumed))


def _show_consumed(consumed: Consumed) -> str:
    return (
        f"ConsumeMessageDirectlyResult [order={show_bool(consumed.ordered)},"
        f" autoCommit={show_bool(consumed.auto_commit)}, consumeResult={consumed.outcome},"
        f" remark={consumed.reason or 'null'},"
        f" spentTimeMills={round(consumed.seconds * 1000)}]"
    )


async def _send_again(call: Call, offset_id: str) -> None:
    message = await call.admin.messages.view(offset_id)
    call.out.say("prepare resend msg. originalMsgId=%s", offset_id)
    receipt = await call.admin.messages.send(
        message.stored_in,
        message.body,
        tags=message.tags or None,
        keys=message.keys,
        properties={name: text for name, text in message.properties.items() if name not in RESERVED},
    )
    if receipt is not None:
        call.out.say("%s", show_receipt(receipt))


async def _show(call: Call, message: StoredMessage, *, with_id: bool = True, index: int = 0) -> None:
    path = await asyncio.to_thread(_write_body, message, index)
    fields: list[tuple[str, object]] = [("OffsetID", message.offset_id)] if with_id else []
    fields += [
        ("Topic", message.stored_in),
        ("Tags", f"[{message.properties.get(TAGS, 'null')}]"),
        ("Keys", f"[{message.properties.get(KEYS, 'null')}]"),
        ("Queue ID", message.queue),
        ("Queue Offset", message.offset),
        ("CommitLog Offset", message.position),
        ("Reconsume Times", message.tries),
        ("Born Timestamp", show_time_ms(message.born_at)),
        ("Store Timestamp", show_time_ms(message.stored_at)),
        ("Born Host", message.born_host),
        ("Store Host", message.store_host),
        ("System Flag", message.sys_flag),
        ("Properties", show_map(message.properties)),
        ("Message Body Path", path),
    ]
    for name, value in fields:
        call.out.say("%-20s %s", f"{name}:", value)
    try:
        tracks = call.take(await call.admin.messages.tracks(message.offset_id))
    except ErucaError as error:
        call.out.fail(f"what groups did with it is unknown: {error}")
        return
    call.out.say("\n")
    for track in tracks:
        call.out.say("%s", _show_track(track))
    if not tracks:
        call.out.say("WARN: No Consumer")


def _show_track(track: Track) -> str:
    outcome, why = _OUTCOMES.get(track.outcome, "UNKNOWN"), track.reason or "null"
    if not track.online:
        outcome = "NOT_ONLINE"
        why = f"CODE:{ResponseCode.CONSUMER_NOT_ONLINE:d} DESC:the consumer group[{track.group}] not online"
    return f"MessageTrack [consumerGroup={track.group}, trackType={outcome}, exceptionDesc={why}]"


def _write_body(message: StoredMessage, index: int) -> Path:
    """Write the body to the file where mqadmin puts it, and return its path."""
    name = name_file(message.message_id) + (f"_{index}" if index else "")
    path = Path(tempfile.gettempdir(), "rocketmq", "msgbodys", name)
    try:
        make_directories(path.parent)
        if path.is_symlink():
            raise OSError("it is a symbolic link")
        write_file(path, message.body)
    except OSError as error:
        raise ConfigError(f"cannot write the body to {path}: {error}", hint="remove it, or set TMPDIR") from error
    return path


# --- the trace of a message -----------------------------------------------------------------------------------------


async def query_trace(call: Call) -> None:
    """Show who sent and who consumed a message, as far as clients traced it."""
    message_id = call.line.text("i")
    rows = call.take(await call.admin.messages.trace(message_id, trace_topic=call.line.find("t"), limit=_BY_KEY_MAX))
    rows = [row for row in rows if row.message_id == message_id]
    if not rows:
        raise NoRoute(f"there is no trace of message {message_id}", hint="clients trace messages if tracing is enabled")
    for row in rows:
        if row.step == "sent":
            _show_steps(call, "Pub", "ProducerGroup", "SendTime", [row])
    consumed: dict[str, list[TraceRow]] = {}
    for row in rows:
        if row.step == "consumed":
            consumed.setdefault(row.group, []).append(row)
    for steps in consumed.values():
        _show_steps(call, "Sub", "ConsumerGroup", "ConsumerTime", steps)


def _show_steps(call: Call, kind: str, group: str, time: str, rows: Sequence[TraceRow]) -> None:
    show = call.out.table(
        "%-10s %-20s %-20s %-20s %-10s %-10s", "Type", group, "ClientHost", time, "CostTimes", "Status"
    )
    for row in rows:
        spent = f"{round((row.seconds or 0) * 1000)}ms"
        host = row.client_host.rpartition(":")[0] or row.client_host
        show(kind, row.group, host, show_time(row.at), spent, "success" if row.succeeded else "failed")
    call.out.say("")


# --- entries of a queue ---------------------------------------------------------------------------------------------


async def query_queue(call: Call) -> None:
    """Show entries of a consume queue as the broker has them on its disk."""
    line, topic = call.line, call.line.text("t")
    broker = line.find("b")
    if broker is None:
        broker = (await call.admin.routes.show(topic)).brokers[0].broker
    index = line.number("i")
    found = await call.admin.messages.entries(
        topic, broker, line.number("q"), index, count=line.number("c", 10), group=line.find("g")
    )
    if found.subscription is not None:
        call.out.say("Subscription data: \n%s\n%s", show_json(found.subscription), _RULE)
    if found.filter is not None:
        call.out.say("Filter data: \n%s\n%s", found.filter, _RULE)
    call.out.say("Queue data: \nmax: %d, min: %d\n%s", found.end, found.begin, _RULE)
    for number, row in enumerate(found.rows, index):
        call.out.say("idx: %d\n%s\n%s", number, _show_entry(row, line.has("g")), _RULE)


def _show_entry(row: QueueRow, for_group: bool) -> str:
    """Return an entry as `ConsumeQueueData.toString` does; without a group Java reports that nothing matches."""
    matches = show_bool(for_group and row.matches)
    return (
        f"ConsumeQueueData{{physicOffset={row.position}, physicSize={row.size}, tagsCode={row.tags_code},"
        f" extendDataJson='{row.extension or 'null'}', bitMap='{row.bit_map or 'null'}', eval={matches},"
        f" msg='{row.message or 'null'}'}}"
    )
