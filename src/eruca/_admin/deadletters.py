"""Dead letters: messages that a group gave up on. List them, send them again, export them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.lag import list_groups
from eruca._admin.queueends import list_queue_ends
from eruca._admin.results import LIMIT, Listed
from eruca._admin.storedmessages import StoredMessage, describe_message, make_row
from eruca._admin.targets import Answering, find_targets, gather_bounded
from eruca._client.message import Message
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.sending import Parcel, Sender
from eruca._ground.durations import to_ms
from eruca._ground.smallfiles import make_directories, open_private, write_file
from eruca._ground.times import to_epoch_ms
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
from eruca.errors import ConfigError, ErucaError, MessageIllegal, NetError, NoRoute, RequestRefused

_TRIES = 3
# Properties that brokers and consumers added after the message was sent. They are not sent again.
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
    # When the newest of them was stored.
    last_at: datetime | None = None
    problem: str = ""


class Resent(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of sending one dead letter again."""

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
    """Selects dead letters. All conditions that are set must hold."""

    # Message ids, offset ids or origin ids.
    ids: Collection[str] = ()
    # The topic they were first sent to.
    topic: str | None = None
    # When they became dead letters; both ends are included.
    since: datetime | None = None
    until: datetime | None = None
    key: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name, time in (("since", self.since), ("until", self.until)):
            if time is not None:
                to_epoch_ms(name, time)  # raises now instead of later

    def fits(self, letter: Message) -> bool:
        """Return whether a dead letter meets the conditions."""
        stored_ms = letter.record.store_timestamp
        return (
            (not self.ids or any(name in self.ids for name in list_ids(letter)))
            and (self.topic is None or find_topic(letter) == self.topic)
            and (self.since is None or stored_ms >= to_epoch_ms("since", self.since))
            and (self.until is None or stored_ms <= to_epoch_ms("until", self.until))
            and (self.key is None or self.key in letter.keys)
        )


#: Every dead letter.
ALL = Wanted()

# --- looking ----------------------------------------------------------------------------------------------------------


def list_ids(letter: Message) -> tuple[str, str, str]:
    """Return the ids of a dead letter: of the message, of the record, and of the first record."""
    return letter.message_id, letter.offset_id, letter.origin_id


def find_topic(letter: Message) -> str:
    """Return the topic a dead letter was sent to before any retry; empty if its properties do not contain it."""
    topic = letter.all_properties.get(RETRY_TOPIC, "")
    return "" if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else topic


async def _read(connection: Connection, group: str, wanted: Wanted = ALL) -> AsyncIterator[Message]:
    """Yield the dead letters of a group, oldest first on each broker. Raises NoRoute if no broker knows it."""
    left = wanted.limit
    missing = set(wanted.ids)
    for queue in await _list_queues(connection, group):
        try:
            async for letter in connection.read_queue(queue):
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
                hint=f"old Java brokers create it without permission to read: eruca topic permission {queue.topic} RW",
            ) from error


async def _list_queues(connection: Connection, group: str) -> list[MessageQueue]:
    topic = DLQ_PREFIX + check_group(group)
    route = await connection.find_route(topic)
    if route is None:
        # A group has the topic from its first dead letter on.
        known, problems = await list_groups(connection, await find_targets(connection))
        if group in known or problems:
            return []
        raise NoRoute(
            f"group {group} has no dead letters: no broker knows it",
            hint="eruca dlq list shows the groups that have some",
        )
    # Old brokers create these topics without permission to read.
    return sorted({*route.read_queues, *route.write_queues})


# --- sending again ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Journal:
    """A file of outcomes, one JSON object per line, with which an interrupted run can be continued."""

    path: Path | None = None
    _sent: set[str] = field(default_factory=set)
    _is_cut: bool = False

    def open(self) -> None:
        """Read which letters earlier runs have sent. Raises ConfigError if the file is not a journal."""
        if self.path is None or not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8")
        self._is_cut = not text.endswith("\n")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = msgspec.json.decode(line, type=Resent)
            except msgspec.DecodeError:
                if line.startswith('{"letter"'):
                    continue  # that run ended in the middle of the line
                raise ConfigError(f"{self.path}, line {number}: not the journal of a resend") from None
            if row.outcome == "sent":
                self._sent.add(row.letter)

    def has(self, letter: str) -> bool:
        """Return whether an earlier run sent this letter."""
        return letter in self._sent

    def add(self, row: Resent) -> None:
        """Append one outcome to the file."""
        if self.path is None or row.outcome == "skipped":
            return
        with open(self.path, "a", encoding="utf-8", opener=open_private) as file:
            file.write("\n" if self._is_cut else "")
            self._is_cut = False
            file.write(json.dumps(msgspec.to_builtins(row), ensure_ascii=False) + "\n")


async def _send(connection: Connection, sender: Sender, letter: Message, target: str, turn: int) -> Receipt:
    if not target:
        raise MessageIllegal("its properties do not contain the topic it came from", hint="pass one: --to-topic TOPIC")
    # Not with the template's route: sending must not create a topic that was deleted.
    queues = (await connection.get_route(target)).write_queues
    if not queues:
        raise NoRoute(f"topic {target} has no queue that may be written to")
    parcel = make_parcel(letter, target)
    for attempt in range(_TRIES):
        queue = queues[(turn + attempt) % len(queues)]
        try:
            return await sender.send(parcel, queue, to_ms("call_timeout", connection.options.call_timeout))
        except (NetError, RequestRefused) as error:
            if attempt == _TRIES - 1 or not error.retryable:
                raise
            await connection.require_route(target)
    raise AssertionError("the last try returns or raises")


def make_parcel(letter: Message, target: str) -> Parcel:
    """Return a dead letter as it is sent again: what its sender wrote, without what brokers and consumers added."""
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


# --- the part of the admin API ----------------------------------------------------------------------------------------


class DeadLetters:
    """Lists dead letters and sends them again: `admin.dead_letters`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, limit: int = LIMIT) -> Listed[GroupLetters]:
        """Return every group that has dead letters, and how many each has."""
        connection = self._connection
        brokers = Answering(await find_targets(connection))
        topics = [topic for topic in await connection.list_topics() if topic.startswith(DLQ_PREFIX)]

        async def ask(topic: str) -> GroupLetters:
            ends, problems = await list_queue_ends(connection, topic, brokers.rows)
            brokers.note(problems)
            return GroupLetters(
                group=topic.removeprefix(DLQ_PREFIX),
                count=sum(row.count for row in ends),
                last_at=max((row.last_at for row in ends if row.count and row.last_at is not None), default=None),
                problem="; ".join(f"{problem.where}: {problem.error}" for problem in problems),
            )

        asked = topics[:limit]
        rows = [
            GroupLetters(group=topic.removeprefix(DLQ_PREFIX), count=0, problem=str(answer))
            if isinstance(answer, ErucaError)
            else answer
            for topic, answer in zip(asked, await gather_bounded(asked, ask), strict=True)
        ]
        return Listed(items=rows, cut=len(topics) > limit, problems=brokers.problems)

    async def count(self, group: str) -> int:
        """Return the number of dead letters of a group. Raises NoRoute if no broker knows it."""
        reader = self._connection.reader
        total = 0
        for queue in await _list_queues(self._connection, group):
            total += await reader.find_end(queue) - await reader.find_begin(queue)
        return total

    async def read(self, group: str, wanted: Wanted = ALL) -> AsyncIterator[StoredMessage]:
        """Yield the dead letters of a group, oldest first on each broker. Raises NoRoute if no broker knows it."""
        async for letter in _read(self._connection, group, wanted):
            yield describe_message(letter)

    async def find(self, group: str, name: str) -> StoredMessage:
        """Return the dead letter with a message id, offset id or origin id. Raises ConfigError."""
        async for letter in self.read(group, Wanted(ids=(name,), limit=1)):
            return letter
        raise ConfigError(f"group {group} has no dead letter {name}", hint=f"eruca dlq list {group} lists them")

    async def resend(
        self,
        group: str,
        wanted: Wanted = ALL,
        *,
        only_group: bool = False,
        topic: str | None = None,
        journal: Journal | None = None,
        dry_run: bool = False,
    ) -> AsyncIterator[Resent]:
        """Send dead letters again and yield the outcome of each, in order.

        Each goes to the topic it came from, where every group of that topic receives it; with `only_group` to the retry
        topic of the group, which only this group reads; or to `topic`. Id, keys, tags, properties and body are
        unchanged. The dead letter itself stays until it expires; a `journal` records which ones were sent. A letter
        that cannot be sent does not stop the others.
        """
        journal = journal or Journal()
        await asyncio.to_thread(journal.open)
        connection = self._connection
        sender = Sender(connection.session, TOOLS_PRODUCER_GROUP)
        turn = 0
        async for letter in _read(connection, group, wanted):
            target = RETRY_PREFIX + group if only_group else topic or find_topic(letter)
            if journal.has(letter.offset_id):
                yield _tell(letter, target, "skipped", "an earlier run sent it")
                continue
            if dry_run:
                yield _tell(letter, target, "planned")
                continue
            try:
                receipt = await _send(connection, sender, letter, target, turn)
            except ErucaError as error:
                row = _tell(letter, target, "failed", str(error))
            else:
                row = _tell(letter, target, "sent", receipt=receipt)
            turn += 1
            await asyncio.to_thread(journal.add, row)
            yield row


def write_files(directory: Path, letter: StoredMessage) -> None:
    """Write a dead letter to a directory: its body in one file, everything else as JSON in another."""
    make_directories(directory)
    row = make_row(letter)
    del row["body_base64"]
    write_file(directory / f"{letter.offset_id}.body", letter.body)
    text = json.dumps(row, ensure_ascii=False, indent=2) + "\n"
    write_file(directory / f"{letter.offset_id}.json", text.encode())
