"""Where a group begins in a queue: at its committed offset, or where the user wants a new group to begin."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from eruca._client.group.offsets import OffsetStore, Progress
from eruca._client.group.pulling import peek
from eruca._client.group.settings import Start
from eruca._client.session.calls import Calls
from eruca._client.session.session import Session
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import ConsumeFromWhere, MessageQueue
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.record import Record
from eruca.errors import CallTimeout, ConfigError, ErucaError

log = logging.getLogger(__name__)

# Messages read at once to find the first one of a time, and how long the broker may take to return them.
_LOOK_AROUND = 32
_LOOK_TIMEOUT_MS = 5000
# Otherwise a broker could keep the search going without end.
_SEARCH_S_MAX = 30.0


def describe_start(start: Start) -> ConsumeFromWhere:
    """Return the start as heartbeats carry it. Raises ConfigError for anything else."""
    if isinstance(start, datetime):
        to_epoch_ms("start", start)  # it must have a time zone
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    if start == "earliest":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    if start == "latest":
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    raise ConfigError(f"start={start!r}: expected 'latest', 'earliest' or a datetime")


class StartOffsets:
    """Finds the start offset of a queue."""

    def __init__(self, session: Session, offsets: OffsetStore, start: Start) -> None:
        self._session = session
        self._offsets = offsets
        self._start = start

    async def find(self, queue: MessageQueue, first_seen: frozenset[MessageQueue], *, keep: bool = True) -> Progress:
        """Return where to begin. Raises ErucaError when it cannot be determined now.

        A queue that did not exist when the topic was first seen is read from its beginning: its messages were sent
        while the group was listening. The start offset of a new group is committed at once, so that messages which
        arrive before its first commit are not skipped when it restarts. With `keep=False` it is not committed.
        """
        kept = await self._offsets.read(queue)
        if kept is not None:
            return kept
        if queue.topic.startswith(RETRY_PREFIX):
            return Progress(0)
        begin = Progress(await self._find_new(queue, is_new=queue not in first_seen))
        if keep:
            await self._offsets.write({queue: begin}, wait=True)
        return begin

    def report(self, queue: MessageQueue, error: ErucaError) -> None:
        """Log that the start offset of a queue cannot be determined now."""
        session = self._session
        server = session.routes.find_address(queue.broker_name) or queue.broker_name
        session.outages.report(log, server, error, "the start offset of %s cannot be determined now: %s", queue, error)

    async def _find_new(self, queue: MessageQueue, *, is_new: bool) -> int:
        calls = self._session.calls
        address = self._session.routes.require_address(queue.broker_name)
        if is_new or self._start == "earliest":
            return await calls.find_min_offset(address, queue)
        if isinstance(self._start, datetime):
            time_ms = to_epoch_ms("start", self._start)
            return await find_offset_since(calls, address, self._offsets.group, queue, time_ms)
        return await calls.find_max_offset(address, queue)


async def find_offset_since(calls: Calls, address: str, group: str, queue: MessageQueue, time_ms: int) -> int:
    """Return the offset of the first message stored at a time or after it.

    A broker returns the message nearest to the time, on either side, or any of several in the same millisecond, and
    for a time after the end the last message. So its answer is only where to start looking. Raises CallTimeout when
    the search does not end.
    """
    try:
        async with asyncio.timeout(_SEARCH_S_MAX):
            return await _search(calls, address, group, queue, time_ms)
    except TimeoutError:
        raise CallTimeout(
            f"the search for a start time in {queue} on broker {address} did not end within {_SEARCH_S_MAX:.0f} s"
        ) from None


async def _search(calls: Calls, address: str, group: str, queue: MessageQueue, time_ms: int) -> int:
    offset = await calls.find_offset_at(address, queue, time_ms)
    while offset > 0:
        first = max(0, offset - _LOOK_AROUND)
        records = [
            record for record in await _look(calls, address, group, queue, first) if record.queue_offset < offset
        ]
        since = [record.queue_offset for record in records if record.store_timestamp >= time_ms]
        if not since:
            break
        offset = since[0]
        if len(since) < len(records):
            break
    while records := await _look(calls, address, group, queue, offset):
        for record in records:
            if record.store_timestamp >= time_ms:
                return record.queue_offset
        offset = records[-1].queue_offset + 1
    return offset


async def _look(calls: Calls, address: str, group: str, queue: MessageQueue, offset: int) -> list[Record]:
    return await peek(calls, address, group, queue, offset, count_max=_LOOK_AROUND, timeout_ms=_LOOK_TIMEOUT_MS)
