"""Transactions: which are prepared, decided or given up; resume those given up, discard those prepared.

The state is derived from records alone. A half message and every copy of it that a check wrote have the same unique id.
An op record contains the offset of a half that is decided: the transaction was committed if a message points back at
the half, and rolled back if none does. A half whose producer was asked too often is in the max-check topic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path

import msgspec

from eruca._admin.session import Admin, explain_no_master
from eruca._client.message import Message
from eruca._ground.digits import read_digits
from eruca._ground.limits import POSITION_MAX
from eruca._ground.times import from_epoch_ms
from eruca._store.layout import StorePaths
from eruca._store.log.scan import iter_records
from eruca._storetools.readonly import ReadOnlyStore
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.halves import HALF_QUEUE, PROGRESS_GROUP, read_decided_offset
from eruca._wire.headers import EndTransactionHeader, MessageIdHeader, QueryMessageHeader
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC, OP_HALF_TOPIC
from eruca._wire.properties import PGROUP, REAL_QID, REAL_TOPIC, TRANSACTION_CHECK_TIMES, UNIQ_KEY
from eruca._wire.record import Record, decode_record
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, get_transaction
from eruca.errors import ConfigError, ErucaError, WireError

__all__ = [
    "UNDECIDED",
    "Deed",
    "State",
    "Transaction",
    "TransactionTable",
    "count_log_bytes",
    "discard",
    "find",
    "list_transactions",
    "read_store",
    "resume",
    "view",
]

# A query by unique id finds the committed message, its retries, and others with the same hash.
_QUERY_COUNT_MAX = 64


class State(Enum):
    """The state of a transaction."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    # Its producer was asked too often; the message is kept in the max-check topic.
    GIVEN_UP = "given up"


#: The states of a transaction that is neither committed nor rolled back.
UNDECIDED = frozenset({State.PREPARED, State.GIVEN_UP})


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction."""

    state: State
    # The id its producer chose.
    message_id: str
    # The id of its newest record: the half, or the one given up.
    offset_id: str
    # Where that record is in the commit log and in its queue.
    position: int
    offset: int
    size: int
    # When its first half was stored, and when it was sent.
    stored_at: datetime | None
    born_at: datetime | None
    producer_group: str
    topic: str
    queue: int
    # How many times its producer was asked.
    checks: int
    # Where the committed message is.
    committed_position: int | None = None
    broker: str = ""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of resuming or discarding one transaction."""

    message_id: str
    # `resumed`, `discarded`, `skipped` or `failed`, with the `reason`.
    outcome: str
    # Its state before; None if the transaction is unknown.
    state: State | None
    reason: str = ""


# --- the table, from records --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Course:
    """The records of one transaction, in the order of the log."""

    first: Record
    last: Record
    halves: dict[int, int] = field(default_factory=dict)  # positions by offset
    given_up: Record | None = None
    committed_position: int | None = None


class TransactionTable:
    """Derives the state of each transaction from records added in the order of the log."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        # The position of the newest op record by the half offset it names.
        self._ops: dict[int, int] = {}
        self._commits: dict[int, int] = {}

    def add(self, record: Record) -> None:
        """Add a record of the half, op or max-check topic."""
        if record.topic == OP_HALF_TOPIC:
            half_offset = read_decided_offset(record)
            if half_offset is not None:
                self._ops[half_offset] = record.position
            return
        record.body = b""  # it is not needed, and there may be very many
        name = record.get_property(UNIQ_KEY) or str(record.position)
        course = self._courses.get(name)
        if course is None:
            course = self._courses[name] = _Course(record, record)
        if record.topic == MAX_CHECK_TOPIC:
            course.given_up = course.last = record
            return
        course.last, course.given_up = record, None
        course.halves[record.queue_offset] = record.position

    def add_commit(self, prepared_position: int, position: int) -> None:
        """Add a committed message that points back at a half."""
        self._commits[prepared_position] = position

    def list(self) -> Iterator[Transaction]:
        """Yield every transaction, in the order in which they began."""
        for name, course in self._courses.items():
            yield self._describe(name, course)

    def _describe(self, name: str, course: _Course) -> Transaction:
        last = course.last
        committed = next((self._commits[at] for at in course.halves.values() if at in self._commits), None)
        queue = read_digits(last.get_property(REAL_QID))
        return Transaction(
            state=self._judge(course, committed),
            message_id=name,
            offset_id=encode_offset_id(last.store_host, last.position),
            position=last.position,
            offset=last.queue_offset,
            size=last.size,
            stored_at=from_epoch_ms(course.first.store_timestamp),
            born_at=from_epoch_ms(course.first.born_timestamp),
            producer_group=last.get_property(PGROUP) or "",
            topic=last.get_property(REAL_TOPIC) or "",
            queue=-1 if queue is None else queue,
            checks=read_digits(last.get_property(TRANSACTION_CHECK_TIMES)) or 0,
            committed_position=committed,
        )

    def _judge(self, course: _Course, committed: int | None) -> State:
        if committed is not None:
            return State.COMMITTED
        # An op before the half is about an earlier half, lost in a crash, that had the same offset.
        if any(self._ops.get(offset, -1) > position for offset, position in course.halves.items()):
            return State.ROLLED_BACK
        return State.PREPARED if course.given_up is None else State.GIVEN_UP


def read_store(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    *,
    commitlog: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Transaction]:
    """Return the transactions of a store directory, from its commit log alone; a broker may have it open."""
    table = TransactionTable()
    ours = {HALF_TOPIC.encode(), OP_HALF_TOPIC.encode(), MAX_CHECK_TOPIC.encode()}
    with ReadOnlyStore(directory, properties, paths=StorePaths(directory, commitlog)) as store:
        for run in store.runs:
            for view, segment, position in iter_records(run, run.start, run.end):
                if progress is not None:
                    progress(view.size)
                if view.topic in ours:
                    try:
                        table.add(decode_record(segment.buffer, position - segment.start))
                    except WireError:
                        continue  # damaged; `eruca store verify` shows where
                elif get_transaction(view.sys_flag) == TRANSACTION_COMMIT:
                    table.add_commit(view.prepared_position, position)
    return list(table.list())


def count_log_bytes(directory: Path, properties: Mapping[str, str] | None = None) -> int:
    """Return how many bytes `read_store` reads at most."""
    with ReadOnlyStore(directory, properties) as store:
        return sum(run.end - run.start for run in store.runs)


# --- a running cluster ------------------------------------------------------------------------------------------------


async def list_transactions(
    admin: Admin, states: Collection[State] = UNDECIDED, *, progress: Callable[[int], None] | None = None
) -> list[Transaction]:
    """Return the transactions in some states, by broker and in the order in which they began.

    Undecided ones are quick to list: they are after the position up to which their broker has checked. Others take
    longer: to tell committed from rolled back, brokers are asked for the message of each. The same is true for a broker
    that has given some up, because they may have been decided since.
    """
    found: list[Transaction] = []
    wants_decided = not UNDECIDED.issuperset(states)
    for broker, address in (await admin.list_masters()).items():
        rows = await _read_table(admin, broker, address, progress, from_start=wants_decided)
        if not wants_decided and any(row.state is State.GIVEN_UP for row in rows):
            # Their halves, and late decisions about them, are before the position up to which the broker checked.
            rows = await _read_table(admin, broker, address, progress, from_start=True)
        for row in rows:
            # A slow producer may have committed one since it was given up.
            if row.state is State.GIVEN_UP or (row.state is State.ROLLED_BACK and wants_decided):
                row = await _look_for_commit(admin, address, row)  # noqa: PLW2901
            if row.state in states:
                found.append(msgspec.structs.replace(row, broker=broker))
    return found


async def _read_table(
    admin: Admin, broker: str, address: str, progress: Callable[[int], None] | None, *, from_start: bool
) -> list[Transaction]:
    table = TransactionTable()
    async for record in _read_records(admin, broker, address, from_start=from_start):
        table.add(record)
        if progress is not None:
            progress(1)
    return list(table.list())


async def _read_records(admin: Admin, broker: str, address: str, *, from_start: bool) -> AsyncIterator[Record]:
    """Yield all half, given-up and op records of a broker, or those after the position up to which it has checked.

    The ops come last: read first, they would miss the decision about a half that arrives meanwhile. Records that were
    given up, and their copies if they were resumed, are put in the order of the log.
    """
    # Before the halves, because a check may end while they are read.
    half_start, op_start = None, None
    if not from_start:
        half_start = await _find_progress(admin, address, HALF_TOPIC)
        op_start = await _find_progress(admin, address, OP_HALF_TOPIC)
    records: list[Record] = []
    for topic, start in ((HALF_TOPIC, half_start), (MAX_CHECK_TOPIC, None)):
        async for message in _read_topic(admin, broker, topic, start):
            message.record.body = b""
            records.append(message.record)
    for record in sorted(records, key=lambda record: record.position):
        yield record
    async for record in admin.read_unlisted(address, MessageQueue(broker, HALF_QUEUE, OP_HALF_TOPIC), op_start):
        yield record


async def _find_progress(admin: Admin, address: str, topic: str) -> int | None:
    return await admin.calls.read_offset(address, PROGRESS_GROUP, MessageQueue("", HALF_QUEUE, topic))


async def _read_topic(admin: Admin, broker: str, topic: str, start: int | None) -> AsyncIterator[Message]:
    route = await admin.find_route(topic)
    if route is None:
        return
    for queue in route.read_queues:
        if queue.broker_name == broker:
            async for message in admin.read_queue(queue, start):
                yield message


async def _look_for_commit(admin: Admin, address: str, row: Transaction) -> Transaction:
    """Return the transaction as committed if its topic has the message."""
    header = QueryMessageHeader(
        topic=row.topic,
        key=row.message_id,
        max_num=_QUERY_COUNT_MAX,
        begin_timestamp=0,
        end_timestamp=POSITION_MAX,
        unique_key_query=True,
    )
    for record in await admin.calls.query_messages(address, header):
        if get_transaction(record.sys_flag) == TRANSACTION_COMMIT and record.get_property(UNIQ_KEY) == row.message_id:
            return msgspec.structs.replace(row, state=State.COMMITTED, committed_position=record.position)
    return row


async def find(admin: Admin, name: str) -> Transaction:
    """Return the transaction with a message id or an offset id, in any state. Raises ConfigError."""
    for row in await list_transactions(admin, frozenset(State)):
        if name in (row.message_id, row.offset_id):
            return row
    raise ConfigError(f"there is no transaction {name}", hint="eruca txn list --state all lists them")


async def view(admin: Admin, row: Transaction) -> Message:
    """Return the message of a transaction, with its body."""
    # By the broker's name: the address in its id is the one the broker had when it stored the half.
    record = await admin.calls.view_message(await _find_address(admin, row), row.position)
    return Message(record, MessageQueue(row.broker, record.queue_id, record.topic))


async def resume(admin: Admin, row: Transaction) -> Deed:
    """Make a broker ask the producers again about a transaction it has given up."""
    if row.state is not State.GIVEN_UP:
        return _tell(row, "skipped", f"it is {row.state.value}; only those that were given up can be resumed")
    try:
        await admin.ask(
            await _find_address(admin, row),
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            MessageIdHeader(message_id=row.offset_id),
        )
    except ErucaError as error:
        return _tell(row, "failed", str(error))
    return _tell(row, "resumed")


async def discard(admin: Admin, row: Transaction) -> Deed:
    """Roll back a prepared transaction in place of its producer, which is no longer asked about it."""
    if row.state is not State.PREPARED:
        return _tell(row, "skipped", f"it is {row.state.value}; only prepared ones can be discarded")
    header = EndTransactionHeader(
        producer_group=row.producer_group,
        half_offset=row.offset,
        position=row.position,
        decision=TRANSACTION_ROLLBACK,
        message_id=row.message_id,
        from_check=False,
        transaction_id=row.message_id,
    )
    try:
        # Producers send it one way, but a broker answers if asked to.
        await admin.calls.ask(await _find_address(admin, row), make_request(RequestCode.END_TRANSACTION, header))
    except ErucaError as error:
        return _tell(row, "failed", str(error))
    return _tell(row, "discarded")


async def _find_address(admin: Admin, row: Transaction) -> str:
    """Return the address of the master that has the transaction."""
    address = (await admin.list_masters()).get(row.broker)
    if address is None:
        raise explain_no_master(row.broker)
    return address


def _tell(row: Transaction, outcome: str, reason: str = "") -> Deed:
    return Deed(message_id=row.message_id, outcome=outcome, state=row.state, reason=reason)
