"""Calls of one connection: requests to the peer that have no response yet."""

from __future__ import annotations

import asyncio

from eruca._wire.frame import Command
from eruca.errors import CallTimeout, ConnectionLost

_INT32_MAX = 2**31 - 1
#: The number of a response to no request: a server says why it is about to close the connection.
FAREWELL = -1


class Calls:
    """The pending calls and their deadlines."""

    __slots__ = ("_create_future", "_opaque", "_time", "farewell", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._create_future = loop.create_future
        self._time = loop.time
        #: The future and the deadline of each, by its number.
        self.waiting: dict[int, tuple[asyncio.Future[Command], float]] = {}
        self._opaque = 0
        #: Why the peer closes the connection, if it said so.
        self.farewell = ""

    def count_up(self) -> int:
        """Return the number of the next request."""
        self._opaque = opaque = (self._opaque + 1) & _INT32_MAX
        return opaque

    def begin(self, timeout_s: float) -> tuple[int, asyncio.Future[Command]]:
        """Return a number for a request, and the future for its response."""
        future: asyncio.Future[Command] = self._create_future()
        self._opaque = opaque = (self._opaque + 1) & _INT32_MAX
        self.waiting[opaque] = (future, self._time() + timeout_s)
        return opaque, future

    def finish(self, answer: Command) -> bool:
        """Complete the call of a response; return whether there is such a call."""
        waiting = self.waiting.pop(answer.opaque, None)
        if waiting is not None:
            if not waiting[0].done():
                waiting[0].set_result(answer)
            return True
        if answer.opaque == FAREWELL:
            self.farewell = answer.remark or ""
        return False

    def expire(self, now: float, peer: str) -> bool:
        """Fail the calls that timed out, in one scan; return whether there were any."""
        late = [opaque for opaque, (_, deadline) in self.waiting.items() if deadline <= now]
        for opaque in late:
            _fail(self.waiting.pop(opaque)[0], CallTimeout(f"{peer} did not answer in time"))
        return bool(late)

    @property
    def are_all_waiting(self) -> bool:
        """Whether calls were made and none was ever answered."""
        return 0 < self._opaque == len(self.waiting)

    def fail_all(self, peer: str, why: str = "") -> None:
        """The connection was closed: fail all calls."""
        calls, self.waiting = self.waiting, {}
        why = self.farewell or why
        reason = f": {why}" if why else ""
        for future, _ in calls.values():
            _fail(future, ConnectionLost(f"the connection to {peer} was closed{reason}"))


def _fail(future: asyncio.Future[Command], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as retrieved, because the caller may be gone
