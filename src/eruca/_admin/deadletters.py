"""Dead letters: what groups gave up on, one by one, sent again or taken out."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from eruca._admin.session import Admin
from eruca._client.message import Message
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.sending import Parcel, Sender
from eruca._ground.durations import to_ms
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, TOOLS_PRODUCER_GROUP, check_group
from eruca._wire.properties import (
    ARRIVE_TIME,
    CLUSTER,
    CONSUME_START_TIME,
    DELAY,
    MAX_OFFSET,
    MAX_RECONSUME_TIMES,
    MIN_OFFSET,
    MSG_REGION,
    ORIGIN_MESSAGE_ID,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRACE_ON,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSFER_FLAG,
    WAIT,
    encode_properties,
)
from eruca._wire.sysflag import COMPRESSED, COMPRESSION_MASK
from eruca.errors import ConfigError, ErucaError, MessageIllegal, NetError, NoRoute, RequestRefused, WireError

_TRIES = 3
# What brokers and consumers wrote on the way to the dead letters. All else is the sender's and goes along.
_WAY_MARKS = frozenset(
    {
        ARRIVE_TIME,
        CLUSTER,
        CONSUME_START_TIME,
        DELAY,
        MAX_OFFSET,
        MAX_RECONSUME_TIMES,
        MIN_OFFSET,
        MSG_REGION,
        ORIGIN_MESSAGE_ID,
        PGROUP,
        REAL_QID,
        REAL_TOPIC,
        RECONSUME_TIME,
        RETRY_TOPIC,
        TRACE_ON,
        TRAN_MSG,
        TRAN_PREPARED_QUEUE_OFFSET,
        TRANSACTION_CHECK_TIMES,
        TRANSFER_FLAG,
        WAIT,
    }
)


class GroupLetters(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters a group has."""

    group: str
    count: int
    problem: str = ""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter, as plain values."""

    group: str
    # The id its producer gave it, and the one of this record: either names it.
    message_id: str
    offset_id: str
    # The broker's id of the message before any retry.
    origin_id: str
    # Where it was sent to first.
    topic: str
    broker: str
    queue: int
    offset: int
    tags: str
    keys: list[str]
    # How often it was delivered before it was given up.
    tries: int
    size: int
    born_time: int
    dead_time: int
    properties: dict[str, str]


class Resent(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one dead letter that was to be sent again."""

    # The offset id of the dead letter.
    letter: str
    message_id: str
    topic: str
    # `sent`, `failed` (see `reason`), `skipped` (sent by an earlier run) or `planned`.
    outcome: str
    reason: str = ""
    origin_id: str = ""
    # Where it is now.
    offset_id: str = ""
    broker: str = ""
    queue: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters: all conditions that are given must hold."""

    # Message ids, offset ids or origin ids.
    ids: Collection[str] = ()
    # The topic they were sent to first.
    topic: str | None = None
    # When they became dead letters, in milliseconds, both included.
    from_time: int | None = None
    to_time: int | None = None
    key: str | None = None
    limit: int | None = None

    def fits(self, letter: Message) -> bool:
        """Is it one of those?"""
        stored = letter.record.store_timestamp
        return (
            (not self.ids or any(name in self.ids for name in list_ids(letter)))
            and (self.topic is None or find_topic(letter) == self.topic)
            and (self.from_time is None or stored >= self.from_time)
            and (self.to_time is None or stored <= self.to_time)
            and (self.key is None or self.key in letter.keys)
        )


ALL = Wanted()

# --- looking ----------------------------------------------------------------------------------------------------------


def list_ids(letter: Message) -> tuple[str, str, str]:
    """The ids a dead letter is known by."""
    return letter.message_id, letter.offset_id, letter.origin_id


def find_topic(letter: Message) -> str:
    """The topic it was sent to before any retry; empty when nothing says it."""
    topic = letter.all_properties.get(RETRY_TOPIC, "")
    return "" if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else topic


def describe(group: str, letter: Message) -> Letter:
    """A dead letter as plain values, without its body."""
    record = letter.record
    return Letter(
        group=group,
        message_id=letter.message_id,
        offset_id=letter.offset_id,
        origin_id=letter.origin_id,
        topic=find_topic(letter),
        broker=letter.queue.broker_name,
        queue=record.queue_id,
        offset=record.queue_offset,
        tags=letter.tags,
        keys=letter.keys,
        tries=record.reconsume_times,
        size=len(record.body),
        born_time=record.born_timestamp,
        dead_time=record.store_timestamp,
        properties=letter.all_properties,
    )


async def list_groups(admin: Admin) -> list[GroupLetters]:
    """Every group that has dead letters, and how many."""
    rows = []
    for topic in await admin.list_topics():
        if topic.startswith(DLQ_PREFIX):
            group = topic.removeprefix(DLQ_PREFIX)
            try:
                rows.append(GroupLetters(group=group, count=await count(admin, group)))
            except ErucaError as error:
                rows.append(GroupLetters(group=group, count=0, problem=str(error)))
    return rows


async def count(admin: Admin, group: str) -> int:
    """How many dead letters a group has."""
    total = 0
    for queue in await _list_queues(admin, group):
        total += await admin.reader.find_end(queue) - await admin.reader.find_begin(queue)
    return total


async def read(admin: Admin, group: str, wanted: Wanted = ALL) -> AsyncIterator[Message]:
    """The dead letters of a group, the oldest of each broker first. Raises NoRoute when it never had any."""
    left = wanted.limit
    missing = set(wanted.ids)
    for queue in await _list_queues(admin, group):
        try:
            async for letter in admin.read_queue(queue):
                if not wanted.fits(letter):
                    continue
                yield letter
                missing.difference_update(list_ids(letter))
                left = None if left is None else left - 1
                if left == 0 or (wanted.ids and not missing):
                    return
        except RequestRefused as error:
            raise RequestRefused(
                error.code,
                error.remark,
                hint=f"let it be read: mqadmin updateTopicPerm -t '{queue.topic}' -p 6 -c CLUSTER",
            ) from error


async def find(admin: Admin, group: str, name: str) -> Message:
    """The dead letter with an id (of the message, of the record or of the first record). Raises ConfigError."""
    async for letter in read(admin, group, Wanted(ids=(name,), limit=1)):
        return letter
    raise ConfigError(f"group {group} has no dead letter {name}", hint=f"eruca dlq list {group} lists them")


async def _list_queues(admin: Admin, group: str) -> list[MessageQueue]:
    topic = DLQ_PREFIX + check_group(group)
    route = await admin.find_route(topic)
    if route is None:
        raise NoRoute(
            f"group {group} has no dead letters: there is no topic {topic}", hint="eruca dlq list shows who has some"
        )
    # Old brokers made these topics for writing only.
    return sorted({*route.read_queues, *route.write_queues})


# --- sending again ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Journal:
    """A file of outcomes, one JSON object a line, so that a run that was interrupted can be taken up again."""

    path: Path | None = None
    _sent: set[str] = field(default_factory=set)
    _is_cut: bool = False

    def open(self) -> None:
        """Read what earlier runs have sent. Raises ConfigError for a file that is not one of ours."""
        if self.path is None or not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8")
        self._is_cut = not text.endswith("\n")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = msgspec.json.decode(line, type=Resent)
            except msgspec.DecodeError:
                if line.startswith('{"letter"'):
                    continue  # cut off by whatever ended that run
                raise ConfigError(f"{self.path}, line {number}: not the journal of a resend") from None
            if row.outcome == "sent":
                self._sent.add(row.letter)

    def has(self, letter: str) -> bool:
        """Did an earlier run send it?"""
        return letter in self._sent

    def add(self, row: Resent) -> None:
        """Write one outcome down; it is in the file when this returns."""
        if self.path is None or row.outcome == "skipped":
            return
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("\n" if self._is_cut else "")
            self._is_cut = False
            file.write(json.dumps(msgspec.to_builtins(row), ensure_ascii=False) + "\n")


async def resend(
    admin: Admin,
    group: str,
    wanted: Wanted = ALL,
    *,
    only_group: bool = False,
    topic: str | None = None,
    journal: Journal | None = None,
    dry_run: bool = False,
) -> AsyncIterator[Resent]:
    """Send dead letters once more and return what became of each, in their order.

    Each goes to the topic it came from, where every group of the topic gets it; with `only_group` to the retry topic
    of the group, where nobody else does; or to `topic`. Id, keys, tags, properties and body stay as they are. The dead
    letter itself stays too, until its time is over: a `journal` remembers which ones were sent. One that cannot be sent
    does not keep the others from it.
    """
    journal = journal or Journal()
    await asyncio.to_thread(journal.open)
    sender = Sender(admin.session, TOOLS_PRODUCER_GROUP)
    turn = 0
    async for letter in read(admin, group, wanted):
        target = RETRY_PREFIX + group if only_group else topic or find_topic(letter)
        if journal.has(letter.offset_id):
            yield _tell(letter, target, "skipped", "an earlier run sent it")
            continue
        if dry_run:
            yield _tell(letter, target, "planned")
            continue
        try:
            receipt = await _send(admin, sender, letter, target, turn)
        except ErucaError as error:
            row = _tell(letter, target, "failed", str(error))
        else:
            row = _tell(letter, target, "sent", receipt=receipt)
        turn += 1
        await asyncio.to_thread(journal.add, row)
        yield row


async def _send(admin: Admin, sender: Sender, letter: Message, target: str, turn: int) -> Receipt:
    if not target:
        raise MessageIllegal("nothing says which topic it came from", hint="name one: --to-topic TOPIC")
    # Not the template's route: a topic that somebody deleted is not made again by the way.
    queues = (await admin.routes.get(target)).write_queues
    if not queues:
        raise NoRoute(f"topic {target} has no queue that may be written to")
    parcel = make_parcel(letter, target)
    for attempt in range(_TRIES):
        queue = queues[(turn + attempt) % len(queues)]
        try:
            return await sender.send(parcel, queue, to_ms("call_timeout", admin.options.call_timeout))
        except (NetError, RequestRefused) as error:
            if attempt == _TRIES - 1 or not error.retryable:
                raise
            await admin.routes.refresh(target)
    raise AssertionError("the last try returns or raises")


def make_parcel(letter: Message, target: str) -> Parcel:
    """A dead letter as it is sent again: all its sender wrote, and nothing of its way to the dead letters."""
    record = letter.record
    properties = {name: text for name, text in letter.all_properties.items() if name not in _WAY_MARKS}
    properties[WAIT] = "true"
    if target.startswith(RETRY_PREFIX):
        # Consumers of the group see it under the name of this topic.
        properties[RETRY_TOPIC] = find_topic(letter) or target
        properties[ORIGIN_MESSAGE_ID] = letter.origin_id
    return Parcel(
        topic=target,
        body=record.body,
        properties=encode_properties(properties).decode(),
        message_id=letter.message_id,
        sys_flag=record.sys_flag & (COMPRESSED | COMPRESSION_MASK),
        flag=record.flag,
    )


def _tell(letter: Message, target: str, outcome: str, reason: str = "", *, receipt: Receipt | None = None) -> Resent:
    row = Resent(
        letter=letter.offset_id,
        message_id=letter.message_id,
        topic=target,
        outcome=outcome,
        reason=reason,
        origin_id=letter.origin_id,
    )
    if receipt is None:
        return row
    return msgspec.structs.replace(
        row,
        offset_id=receipt.offset_id,
        broker=receipt.queue.broker_name,
        queue=receipt.queue.queue_id,
        offset=receipt.offset,
    )


# --- taking out -------------------------------------------------------------------------------------------------------


def export(group: str, letter: Message) -> dict[str, Any]:
    """A dead letter with its body in base64, as one line of an export has it."""
    row: dict[str, Any] = msgspec.to_builtins(describe(group, letter))
    body, is_packed = read_body(letter)
    return row | {"body_base64": base64.b64encode(body).decode(), "body_is_packed": is_packed}


def read_body(letter: Message) -> tuple[bytes, bool]:
    """The body as it was sent; True when it is as it was stored, because it cannot be unpacked here."""
    try:
        return letter.body, False
    except WireError:
        return letter.record.body, True


def write_files(directory: Path, group: str, letter: Message) -> None:
    """Write a dead letter into a directory: its body as it was sent, and the rest beside it as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    row = export(group, letter)
    del row["body_base64"]
    body, _ = read_body(letter)
    paths = (directory / f"{letter.offset_id}.body", directory / f"{letter.offset_id}.json")
    paths[0].write_bytes(body)
    paths[1].write_text(json.dumps(row, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
