"""The state of transactions, derived from records alone: which are prepared, decided or given up.

A half message and every copy of it that a check wrote have the same unique id.
An op record contains the offset of a half that is decided: the transaction was committed if a message points back at
the half, and rolled back if none does. A half whose producer was asked too often is in the max-check topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

import msgspec

from eruca._ground.digits import read_digits
from eruca._ground.times import from_epoch_ms
from eruca._wire.halves import read_decided_offset
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import MAX_CHECK_TOPIC, OP_HALF_TOPIC
from eruca._wire.properties import PGROUP, REAL_QID, REAL_TOPIC, TRANSACTION_CHECK_TIMES, UNIQ_KEY
from eruca._wire.record import Record


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
