"""Delayed messages: list those that wait for their time, and cancel them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import LIMIT, Listed, cut_list, read_time
from eruca._admin.targets import BrokerRow, ask_each, find_targets, gather_bounded, one_or_all
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._client.produce.producer import Producer
from eruca._ground.digits import read_digits
from eruca._ground.limits import POSITION_MAX
from eruca._ground.times import from_epoch_ms
from eruca._wire.bodies import DelayOffsets, MessageQueue, QueueEntries, QueueEntry, TimerProgress
from eruca._wire.codes import RequestCode
from eruca._wire.headers import QueryConsumeQueueHeader, QueryMessageHeader
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import SCHEDULE_TOPIC, TIMER_TOPIC, TOOLS_PRODUCER_GROUP
from eruca._wire.properties import KEYS, REAL_TOPIC, TAGS, TIMER_DEL_UNIQKEY, TIMER_OUT_MS, UNIQ_KEY, split_keys
from eruca._wire.record import Record
from eruca.errors import ErucaError

# How many entries of a queue one request asks for.
_PAGE = 256
# How many messages of the timer are looked through, the newest: its queue has the delivered ones too.
_SCANNED_MAX = 10_000
_FOUND_MAX = 32
_MS = 1000


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """One message that waits for its time."""

    # Where it will be delivered.
    topic: str
    broker: str
    message_id: str
    offset_id: str
    # When it is due.
    due_at: datetime | None
    born_at: datetime | None
    # 1 to 18; 0: it has an exact time.
    level: int
    tags: str = ""
    keys: list[str] = []
    # Bytes of its record.
    size: int = 0


class LevelProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one delay level of a broker is."""

    broker: str
    level: int
    # How many messages wait in it.
    waiting: int
    offset: int
    end: int


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of cancelling one delayed message."""

    message_id: str
    topic: str
    # `cancelled`, `planned`, `failed` or `unknown` (no such message waits; see `reason`).
    outcome: str
    reason: str = ""
    due_at: datetime | None = None


class DelayedMessages:
    """Lists and cancels delayed messages: `admin.delayed`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, topic: str | None = None, broker: str | None = None, limit: int = LIMIT) -> Listed[Delayed]:
        """Return the messages that wait for their time, those that are due first.

        They have a delay level, or an exact time (`timer`). Of the latter the newest 10,000 are looked through.
        """
        connection = self._connection
        rows = await find_targets(connection, one_or_all(broker))
        found, problems = await ask_each(rows, lambda row: _list_at(connection, row, topic, limit))
        waiting = [each for _, (part, _) in found for each in part]
        waiting.sort(key=lambda each: (each.due_at is None, each.due_at))
        return cut_list(waiting, limit, problems, more=any(cut for _, (_, cut) in found))

    async def levels(self, *, broker: str | None = None) -> Listed[LevelProgress]:
        """Return how many messages wait in each delay level of each broker."""
        connection = self._connection
        rows = await find_targets(connection, one_or_all(broker))
        found, problems = await ask_each(rows, lambda row: _read_levels(connection, row))
        return Listed(items=[each for _, part in found for each in part[0]], problems=problems)

    async def cancel(self, topic: str, message_id: str, *, dry_run: bool = False) -> Cancelled:
        """Cancel a message with an exact time. Those of a delay level cannot be cancelled."""
        connection = self._connection
        rows = await find_targets(connection)
        found, problems = await ask_each(rows, lambda row: _find_timer(connection, row, topic, message_id))
        waiting = [(row, each) for row, each in found if each is not None]
        if not waiting:
            reason = "no message with this id waits for an exact time"
            if problems:
                reason += f"; {problems[0].where} does not answer: {problems[0].error}"
            return Cancelled(message_id=message_id, topic=topic, outcome="unknown", reason=reason)
        row, each = waiting[0]
        outcome = Cancelled(message_id=message_id, topic=topic, outcome="planned", due_at=each.due_at)
        if dry_run:
            return outcome
        # The broker that has the message reads the cancellation in the same queue.
        receipt = Receipt(SendStatus.STORED, message_id, each.offset_id, MessageQueue(row.broker, 0, topic), 0)
        try:
            async with Producer(group=TOOLS_PRODUCER_GROUP, options=connection.options) as producer:
                await producer.cancel_delayed(topic, receipt)
        except ErucaError as error:
            return msgspec.structs.replace(outcome, outcome="failed", reason=str(error))
        return msgspec.structs.replace(outcome, outcome="cancelled")


# --- delay levels -----------------------------------------------------------------------------------------------------


async def _read_levels(connection: Connection, row: BrokerRow) -> tuple[list[LevelProgress], TimerProgress | None]:
    """Return the progress of each delay level with messages, and of the timer; None if there is no timer."""
    _, body = await connection.ask(row.address, RequestCode.GET_ALL_DELAY_OFFSET)
    offsets = body if isinstance(body, DelayOffsets) else DelayOffsets()
    levels = range(1, 1 + max([18, *offsets.offset_table]))
    ends = await gather_bounded(
        levels,
        lambda level: connection.calls.find_max_offset(row.address, MessageQueue("", level - 1, SCHEDULE_TOPIC)),
    )
    found = []
    for level, end in zip(levels, ends, strict=True):
        if isinstance(end, ErucaError):
            raise end
        if end:
            offset = offsets.offset_table.get(level, 0)
            progress = LevelProgress(
                broker=row.where, level=level, waiting=max(0, end - offset), offset=offset, end=end
            )
            found.append(progress)
    return found, offsets.eruca_timer


async def _list_at(connection: Connection, row: BrokerRow, topic: str | None, limit: int) -> tuple[list[Delayed], bool]:
    """Return the messages that wait at one broker, and whether there are more."""
    levels, timer = await _read_levels(connection, row)
    entries: list[tuple[int, int, QueueEntry]] = []
    for level in levels:
        queue = MessageQueue("", level.level - 1, SCHEDULE_TOPIC)
        part = await _read_entries(connection, row, queue, level.offset, level.end, limit + 1)
        # The entry of a delayed message has the time when it is due.
        entries += [(each.tags_code, level.level, each) for each in part]
    entries.sort(key=lambda each: each[0])
    waiting, is_cut = await _view_level_messages(connection, row, entries, topic, limit)
    timed, more = ([], False) if timer is None else await _list_timers(connection, row, timer, topic)
    return [*waiting, *timed], is_cut or more


async def _view_level_messages(
    connection: Connection,
    row: BrokerRow,
    entries: Sequence[tuple[int, int, QueueEntry]],
    topic: str | None,
    limit: int,
) -> tuple[list[Delayed], bool]:
    found: list[Delayed] = []
    for start in range(0, len(entries), _PAGE):
        part = entries[start : start + _PAGE]
        records = await gather_bounded(part, lambda each: connection.calls.view_message(row.address, each[2].position))
        for (due_ms, level, _), record in zip(part, records, strict=True):
            if isinstance(record, Record):
                message = _describe(record, row, level, due_ms)
                if topic in (None, message.topic):
                    found.append(message)
        if len(found) > limit:
            return found, True
    return found, False


async def _read_entries(
    connection: Connection, row: BrokerRow, queue: MessageQueue, begin: int, end: int, limit: int
) -> list[QueueEntry]:
    """Return entries of a queue, up to a limit."""
    found: list[QueueEntry] = []
    at = max(begin, 0, await connection.calls.find_min_offset(row.address, queue))
    while at < end and len(found) < limit:
        header = QueryConsumeQueueHeader(
            topic=queue.topic, queue_id=queue.queue_id, index=at, count=min(_PAGE, end - at, limit - len(found))
        )
        _, body = await connection.ask(row.address, RequestCode.QUERY_CONSUME_QUEUE, header)
        part = body.queue_data if isinstance(body, QueueEntries) else []
        if not part:
            break  # deleted in the meantime
        found += part
        at += len(part)
    return found


def _describe(record: Record, row: BrokerRow, level: int, due_ms: int) -> Delayed:
    properties = record.read_properties()
    offset_id = encode_offset_id(record.store_host, record.position)
    return Delayed(
        topic=properties.get(REAL_TOPIC, ""),
        broker=row.where,
        message_id=properties.get(UNIQ_KEY, offset_id),
        offset_id=offset_id,
        due_at=read_time(due_ms),
        born_at=from_epoch_ms(record.born_timestamp),
        level=level,
        tags=properties.get(TAGS, ""),
        keys=split_keys(properties.get(KEYS, "")),
        size=record.size,
    )


# --- the timer --------------------------------------------------------------------------------------------------------


async def _list_timers(
    connection: Connection, row: BrokerRow, progress: TimerProgress, topic: str | None
) -> tuple[list[Delayed], bool]:
    """Return the messages that wait for an exact time, and whether older ones were not looked at."""
    queue = MessageQueue("", 0, TIMER_TOPIC)
    calls = connection.calls
    begin, end = await calls.find_min_offset(row.address, queue), await calls.find_max_offset(row.address, queue)
    first = max(0, begin, end - _SCANNED_MAX)
    # A message that waits for long is stored again from time to time: the newest record counts.
    found: dict[tuple[str, str], Delayed] = {}
    cancelled: set[tuple[str, str]] = set()
    async for record in connection.read_unlisted(row.address, queue, first):
        properties = record.read_properties()
        target = properties.get(REAL_TOPIC, "")
        if (unique_id := properties.get(TIMER_DEL_UNIQKEY)) is not None:
            cancelled.add((target, unique_id))
        elif topic in (None, target):
            message = _describe(record, row, 0, _find_due_ms(properties))
            found[target, message.message_id] = message
    waiting = [
        message
        for key, message in found.items()
        if key not in cancelled and message.due_at is not None and _is_waiting(message.due_at, progress)
    ]
    return waiting, first > begin


def _find_due_ms(properties: dict[str, str]) -> int:
    return read_digits(properties.get(TIMER_OUT_MS)) or 0


def _is_waiting(due_at: datetime, progress: TimerProgress) -> bool:
    """Whether a message is not delivered yet: the saved progress may be older than what is delivered."""
    return due_at.timestamp() * _MS > progress.through_ms and due_at > datetime.now(UTC)


async def _find_timer(connection: Connection, row: BrokerRow, topic: str, message_id: str) -> Delayed | None:
    """Return the message with an exact time that waits at a broker; None if it has none with this id."""
    _, body = await connection.ask(row.address, RequestCode.GET_ALL_DELAY_OFFSET)
    if not isinstance(body, DelayOffsets) or body.eruca_timer is None:
        return None
    header = QueryMessageHeader(
        topic=TIMER_TOPIC,
        key=message_id,
        max_num=_FOUND_MAX,
        begin_timestamp=0,
        end_timestamp=POSITION_MAX,
        unique_key_query=True,
    )
    found = [
        _describe(record, row, 0, _find_due_ms(record.read_properties()))
        for record in await connection.calls.query_messages(row.address, header)
        if record.get_property(UNIQ_KEY) == message_id and record.get_property(REAL_TOPIC) == topic
    ]
    waiting = [each for each in found if each.due_at is not None and _is_waiting(each.due_at, body.eruca_timer)]
    return max(waiting, key=lambda each: each.due_at or datetime.min.replace(tzinfo=UTC), default=None)
