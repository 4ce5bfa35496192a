"""Where a group begins in a queue: where it was, or where the user wants a new group to begin."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from eruca.client.offsets import OffsetStore
from eruca.client.session import Session
from eruca.errors import ConfigError, NetError
from eruca.wire.bodies import ConsumeFromWhere, MessageQueue
from eruca.wire.names import RETRY_PREFIX

Start = Literal["latest", "earliest"] | datetime


def describe_start(start: Start) -> ConsumeFromWhere:
    """As heartbeats say it. Raises ConfigError for what is none."""
    if isinstance(start, datetime):
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    if start == "earliest":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    if start == "latest":
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    raise ConfigError(f"start={start!r}: expected 'latest', 'earliest' or a datetime")


class StartOffsets:
    """Finds the first offset to pull of a queue."""

    def __init__(self, session: Session, offsets: OffsetStore, start: Start) -> None:
        self._session = session
        self._offsets = offsets
        self._start = start

    async def find(self, queue: MessageQueue, first_seen: frozenset[MessageQueue], *, keep: bool = True) -> int:
        """Where to begin. Raises ErucaError when it cannot be known now.

        A queue that was not there when the topic was looked at first is read from its beginning: its messages were
        sent while the group was listening. What a new group begins with is committed at once, so that messages
        which come before its first commit are not skipped when it restarts; unless it is not to be kept.
        """
        kept = await self._offsets.read(queue)
        if kept is not None:
            return kept
        if queue.topic.startswith(RETRY_PREFIX):
            return 0
        offset = await self._find_new(queue, is_new=queue not in first_seen)
        if keep:
            await self._offsets.write({queue: offset}, wait=True)
        return offset

    async def _find_new(self, queue: MessageQueue, *, is_new: bool) -> int:
        calls = self._session.calls
        address = self._session.routes.find_address(queue.broker_name)
        if address is None:
            raise NetError(f"broker {queue.broker_name} has no address now")
        if is_new or self._start == "earliest":
            return await calls.find_min_offset(address, queue)
        if isinstance(self._start, datetime):
            return await calls.find_offset_at(address, queue, round(self._start.timestamp() * 1000))
        return await calls.find_max_offset(address, queue)
