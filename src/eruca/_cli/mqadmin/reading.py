"""printMsg, printMsgByQueue, consumeMessage: the messages of queues, one after the other."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from eruca._admin.settings import read_permission
from eruca._admin.storedmessages import StoredMessage
from eruca._cli.mqadmin.call import ALL, Call
from eruca._cli.mqadmin.javatext import parse_java_time, show_message, show_queue
from eruca._wire.names import READ
from eruca._wire.properties import MAX_OFFSET, MIN_OFFSET, TAGS
from eruca.errors import ConfigError, NoRoute

# How many messages a broker returns at once.
_BATCH = 32
# How many messages consumeMessage prints unless told otherwise.
_CONSUMED_MAX = 128
_ENDED = "-" * 56


@dataclass(frozen=True, slots=True)
class Part:
    """Messages of one queue, from an offset up to another, which is not included."""

    topic: str
    broker: str
    queue: int
    begin: int
    end: int
    # The ends of the whole queue.
    queue_begin: int
    queue_end: int

    def __str__(self) -> str:
        return show_queue(self.topic, self.broker, self.queue)


# --- which messages -------------------------------------------------------------------------------------------------


async def _list_parts(call: Call, topic: str, since: str = "", until: str = "") -> list[Part]:
    """Return the queues that consumers read; `since` and `until` are the flags that have the times."""
    route = await call.admin.routes.show(topic)
    ends = {(row.broker, row.queue): row for row in call.take(await call.admin.topics.queues(topic, limit=ALL))}
    parts = []
    for row in sorted(route.brokers, key=lambda row: row.broker):
        for queue in range(row.read_queues if read_permission(row.permission) & READ else 0):
            found = ends.get((row.broker, queue))
            begin, end = (found.begin, found.end) if found else (0, 0)
            parts.append(await _limit(call, Part(topic, row.broker, queue, begin, end, begin, end), since, until))
    return parts


async def _limit(call: Call, part: Part, since: str, until: str) -> Part:
    """Return the messages of a queue that were stored between two times."""
    begin = await _find_offset(call, part, since)
    end = await _find_offset(call, part, until)
    return replace(part, begin=part.begin if begin is None else begin, end=part.end if end is None else end)


async def _find_offset(call: Call, part: Part, flag: str) -> int | None:
    """Return the offset of the time that a flag has; None without the flag."""
    if not flag or not call.line.has(flag):
        return None
    at = parse_java_time(f"-{flag}", call.line.text(flag))
    return await call.admin.messages.offset_at(part.topic, part.broker, part.queue, at)


async def _find_part(call: Call, topic: str, broker: str, queue: int, since: str, until: str) -> Part:
    for part in await _list_parts(call, topic):
        if (part.broker, part.queue) == (broker, queue):
            return await _limit(call, part, since, until)
    raise NoRoute(f"topic {topic} has no queue {queue} on broker {broker}", hint="topicStatus lists the queues")


async def _read(call: Call, part: Part, tags: str = "*", group: str | None = None) -> AsyncIterator[StoredMessage]:
    if part.begin >= part.end:
        return
    messages = call.admin.messages.read(
        part.topic, broker=part.broker, queue=part.queue, offset=part.begin, tags=tags, limit=None, group=group
    )
    async for message in messages:
        if message.offset >= part.end:
            return
        yield message


# --- printing -------------------------------------------------------------------------------------------------------


def _print(call: Call, part: Part, message: StoredMessage, charset: str, with_body: bool) -> None:
    # Java's client adds the ends of the queue to each message that it pulls.
    added = {MIN_OFFSET: str(part.queue_begin), MAX_OFFSET: str(part.queue_end)}
    text = message.body.decode(charset, "replace") if with_body else "NOT PRINT BODY"
    call.out.say("MSGID: %s %s BODY: %s", message.message_id, show_message(message, message.properties | added), text)


def _choose_charset(call: Call) -> str:
    name = call.line.text("c", "UTF-8")
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ConfigError(f"-c {name!r}: there is no such character set", hint="for example UTF-8 or GBK") from None


async def print_topic(call: Call) -> None:
    """Print the messages of a topic, queue after queue."""
    line = call.line
    charset, with_body = _choose_charset(call), line.is_true("d", True)
    for part in await _list_parts(call, line.text("t"), "b", "e"):
        call.out.say("minOffset=%s, maxOffset=%s, %s", part.begin, part.end, part)
        found = False
        async for message in _read(call, part, line.text("s", "*")):
            found = True
            _print(call, part, message, charset, with_body)
        if not found and part.begin < part.end:
            call.out.say("%s no matched msg. status=NO_MATCHED_MSG, offset=%s", part, part.end)
        call.out.say(_ENDED)


async def print_queue(call: Call) -> None:
    """Print the messages of one queue, and how many have each tag."""
    line = call.line
    charset = _choose_charset(call)
    part = await _find_part(call, line.text("t"), line.text("a"), line.number("i"), "b", "e")
    tags: Counter[str] = Counter()
    async for message in _read(call, part, line.text("s", "*")):
        tags[message.properties.get(TAGS, "")] += 1
        if line.is_true("p"):
            _print(call, part, message, charset, line.is_true("d"))
    if line.is_true("f"):
        for tag, count in tags.most_common():
            if tag.strip():
                call.out.say("Tag: %-30s Count: %s", tag, count)


async def consume(call: Call) -> None:
    """Print messages of a topic, of a queue, or from an offset on, as many as `-c` says."""
    line, topic = call.line, call.line.text("t")
    _check_consume(call)
    left = line.number("c", _CONSUMED_MAX)
    if not line.has("i"):
        for part in await _list_parts(call, topic, "s", "e"):
            note = f"The older {left} message of the {part.queue} queue will be provided"
            left -= await _consume_part(call, part, left, note)
            if left <= 0:
                return
        return
    part = await _find_part(call, topic, line.text("b"), line.number("i"), "s", "e")
    offset = line.number("o")
    if offset > part.end:
        call.out.say("%s no matched msg, offset=%s", part, offset)
        return
    part = replace(part, begin=max(part.begin, offset))
    # The spelling is Java's.
    await _consume_part(call, part, left, f"The oldler {left} message will be provided")


async def _consume_part(call: Call, part: Part, count: int, cut_note: str) -> int:
    """Print messages of a queue; returns how many."""
    is_cut = part.end - part.begin > count
    if is_cut:
        call.out.say(cut_note)
        part = replace(part, end=part.begin + count)
    done = 0
    async for message in _read(call, part, group=call.line.find("g")):
        if done % _BATCH == 0:
            call.out.say("Consume ok")
        _print(call, part, message, "utf-8", with_body=True)
        done += 1
    if not is_cut:
        call.out.say("%s print msg finished. status=NO_NEW_MSG, offset=%s", part, part.end)
    return done


def _check_consume(call: Call) -> None:
    line, now = call.line, datetime.now(UTC)
    if line.number("c", 1) <= 0:
        raise ConfigError("Please input a positive messageNumber!")
    if line.has("i") and not line.has("b"):
        raise ConfigError("Please set the brokerName before queueId!")
    if line.has("o") and not line.has("i"):
        raise ConfigError("Please set queueId before offset!")
    times = {flag: parse_java_time(f"-{flag}", line.text(flag)) for flag in "se" if line.has(flag)}
    if "s" in times and times["s"] > now:
        raise ConfigError("Please set the beginTimestamp before now!")
    if "e" in times and times["e"] > now:
        raise ConfigError("Please set the endTimestamp before now!")
    if len(times) > 1 and times["s"] > times["e"]:
        raise ConfigError("Please make sure that the beginTimestamp is less than or equal to the endTimestamp")
