"""What popping offers to the protocols that serve it: remoting, and gRPC in the same process.

All methods are called on the broker's event loop. They raise RequestRefused where a broker refuses the request as a
whole (the topic or the group does not exist or may not be read, an expression is invalid, the broker is not a master,
its disk is full); what happens to one message is an `Outcome`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eruca._wire.handle import Handle


class PopStatus(enum.Enum):
    """The result of a pop as a whole."""

    FOUND = "found"
    #: Nothing to deliver until the deadline.
    NOTHING = "no new message"
    #: The request was not held, because too many wait already.
    POLLING_FULL = "polling full"


class Outcome(enum.Enum):
    """What became of one message that a consumer acknowledged, or wanted to change."""

    DONE = "done"
    #: The handle is void: its time ran out, it was replaced by another one, or the message is acknowledged already.
    GONE = "the handle is void"
    #: The handle cannot be one of this broker, topic and group.
    INVALID = "not a handle of this topic"
    #: It is done, but not as safe in time as the broker's options demand (disk); it may be undone by a crash.
    UNSAFE_DISK = "not flushed in time"
    #: The same for the slaves.
    UNSAFE_SLAVE = "not replicated in time"


@dataclass(frozen=True, slots=True, kw_only=True)
class PopRequest:
    """One request for messages."""

    group: str
    topic: str
    #: One queue, or all of them.
    queue_id: int = -1
    #: The number of messages; at most 32 are delivered.
    count: int = 32
    #: How long the messages are invisible to other members, unless they are acknowledged.
    invisible_ms: int
    #: Wait for messages until then, by the loop's clock; None: answer at once.
    deadline: float | None = None
    #: TAG or SQL92.
    filter_kind: str = "TAG"
    filter_text: str = "*"
    #: In order: the next messages of a queue only when all before are acknowledged or visible again.
    fifo: bool = False
    #: Identifies a request that is repeated because its answer was lost; only in order.
    attempt_id: str = ""
    #: Where a group without an offset begins: with new messages, or with the oldest ones.
    latest: bool = True
    #: Whether the answer can still be delivered; asked right before messages are.
    is_wanted: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class Popped:
    """One message that was delivered."""

    #: Its record in the layout of the commit log; a slice of the mapped log, for copying before the next request.
    record: memoryview | bytearray
    #: The topic it was requested from, also if it was read from the retry topic.
    topic: str
    #: Where the record is: queue and offset in the topic, or in the retry topic (`handle.kind`).
    queue_id: int
    queue_offset: int
    #: The handle with all nine fields.
    handle: Handle
    #: 1 for the first delivery.
    attempt: int


@dataclass(slots=True)
class PopResult:
    """The result of a pop."""

    status: PopStatus
    messages: list[Popped] = field(default_factory=list)
    #: When the messages were popped, by the wall clock; they are visible again `invisible_ms` later.
    pop_ms: int = 0
    invisible_ms: int = 0
    #: How many messages are left in the queues of the request.
    rest: int = 0


class Popping(Protocol):
    """Popping in a broker."""

    async def pop(self, request: PopRequest) -> PopResult:
        """Deliver messages, or wait for some. A cancelled call delivers nothing."""

    async def ack(self, group: str, topic: str, handle: Handle) -> Outcome:
        """Acknowledge a message: it is not delivered again. `topic` is the one of the pop, also for a retry."""

    async def ack_many(self, group: str, topic: str, handles: Sequence[Handle]) -> list[Outcome]:
        """Acknowledge several messages in one write; returns an outcome for each."""

    async def change(
        self, group: str, topic: str, handle: Handle, invisible_ms: int, *, suspend: bool = False
    ) -> tuple[Outcome, Handle]:
        """Make a message visible after another time from now on; returns the new handle, which replaces the old one.

        With `suspend`, the delivery does not count as an attempt. Without success, the old handle is returned.
        """

    async def bury(self, group: str, topic: str, handle: Handle) -> Outcome:
        """Move a message to the dead letters of its group and acknowledge it."""
