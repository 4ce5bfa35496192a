"""The receipt handle of a popped message: what its consumer shows to acknowledge it.

    startOffset popTime invisibleTime reviveQueueId topicType brokerName queueId offset [commitLogOffset]

The first eight fields are RocketMQ 5's `POP_CK` (extraInfo); the ninth is in the handles of gRPC clients.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eruca.errors import WireError

#: The topic of the message itself, and the one of the group for messages of that topic that are delivered again.
NORMAL: Final = 0
RETRY: Final = 1
#: The revive queue that RocketMQ 5 names in handles of messages that were popped in order.
ORDERED_QUEUE: Final = 999

_FIELDS_MIN: Final = 8
_FIELDS_MAX: Final = 9
_DIGITS_MAX: Final = 18


class Handle(msgspec.Struct, frozen=True, gc=False):
    """A receipt handle. Topic and group are not in it: every request names them."""

    start: int
    pop_ms: int
    invisible_ms: int
    # 0 for messages of one queue in any order, ORDERED_QUEUE for those in order.
    revive_queue: int
    # NORMAL or RETRY: which of the two topics the queue belongs to.
    kind: int
    broker: str
    queue_id: int
    offset: int
    # Where the record is in the commit log; -1: the handle does not say.
    position: int = -1

    @property
    def due_ms(self) -> int:
        """When the message becomes visible again, by the wall clock."""
        return self.pop_ms + self.invisible_ms

    @property
    def is_ordered(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue == ORDERED_QUEUE

    def encode(self) -> str:
        """Return the text for gRPC clients, with the position if it is known."""
        return self.encode_short() if self.position < 0 else f"{self.encode_short()} {self.position}"

    def encode_short(self) -> str:
        """Return the text for remoting clients."""
        return (
            f"{self.start} {self.pop_ms} {self.invisible_ms} {self.revive_queue} {self.kind} {self.broker} "
            f"{self.queue_id} {self.offset}"
        )


def decode_handle(text: str) -> Handle:
    """Read a handle. Raises WireError."""
    parts = text.split(" ")
    if not _FIELDS_MIN <= len(parts) <= _FIELDS_MAX:
        raise WireError(f"a receipt handle has {_FIELDS_MIN} or {_FIELDS_MAX} fields, not {len(parts)}")
    start, pop_ms, invisible_ms, revive_queue, kind = [_read(part) for part in parts[:5]]
    queue_id, offset, *position = [_read(part) for part in parts[6:]]
    return Handle(
        start, pop_ms, invisible_ms, revive_queue, kind, parts[5], queue_id, offset, position[0] if position else -1
    )


def _read(part: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX):
        raise WireError(f"a receipt handle has the number {part[:32]!r}")
    return int(part)
