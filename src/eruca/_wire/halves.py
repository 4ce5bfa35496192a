"""The queues of undecided transactions, as RocketMQ lays them out, and the op records in them.

Both topics, `names.HALF_TOPIC` and `names.OP_HALF_TOPIC`, have one queue. A record of the op queue with the tag `d`
says that the half at the queue offset in its body, a decimal number, is decided.
"""

from __future__ import annotations

from typing import Final

from eruca._ground.digits import read_digits
from eruca._wire.properties import TAGS, get_property
from eruca._wire.record import Record

# The group under whose name a broker keeps how far it has checked both queues.
PROGRESS_GROUP: Final = "CID_RMQ_SYS_TRANS"
HALF_QUEUE: Final = 0
DECIDED_TAG: Final = "d"

_RAW_TAGS: Final = TAGS.encode()
_RAW_DECIDED_TAG: Final = DECIDED_TAG.encode()


def read_decided_offset(op: Record) -> int | None:
    """Return the queue offset of the half that an op record says is decided, or None if it cannot be read."""
    return read_digits(op.body) if get_property(op.properties, _RAW_TAGS) == _RAW_DECIDED_TAG else None
