"""Pulled messages for whoever iterates over a consumer, and those who wait for the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from eruca._client.message import Message


class MessageStream:
    """A line of messages, and a line of tasks that wait for one."""

    def __init__(self, is_open: Callable[[Message], bool]) -> None:
        # Is a message still ours to hand out? Its queue may be another's by now.
        self._is_open = is_open
        self._messages: deque[Message] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return len(self._waiting)

    def put(self, messages: Iterable[Message]) -> None:
        """Messages were pulled: call one task that waits."""
        self._messages.extend(messages)
        self._call_one()

    def _call_one(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def take(self) -> Message | None:
        """The next message, if there is one now. Whoever takes one calls the next task, if more are left."""
        while self._messages:
            message = self._messages.popleft()
            if self._is_open(message):
                if self._messages:
                    self._call_one()
                return message
        return None

    def take_rest(self, count: int) -> list[Message]:
        """What else is here, at most this many."""
        return [self._messages.popleft() for _ in range(min(len(self._messages), count))]

    async def wait(self) -> None:
        """Wait until there may be a message, or no more will come."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                # It was called for a message and is cancelled before it could take it: a timeout around `anext` does
                # that. The message is for the next one.
                self._call_one()
            else:
                self._waiting.remove(future)
            raise

    def end(self) -> None:
        """No more will come: call everybody."""
        while self._waiting:
            self._call_one()

    def clear(self) -> None:
        """Forget what nobody has taken."""
        self._messages.clear()
