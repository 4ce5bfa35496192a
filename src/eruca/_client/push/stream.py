"""Pulled messages for code that iterates over a consumer, and the tasks that wait for the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from eruca._client.message import Message


class MessageStream:
    """A queue of messages and a queue of tasks that wait for one."""

    def __init__(self, hand_out: Callable[[Message], bool]) -> None:
        # Tells whether a message may still be handed out, just before it is. Its queue may be another member's by now.
        self._hand_out = hand_out
        self._messages: deque[Message] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """The number of waiting tasks."""
        return len(self._waiting)

    def put(self, messages: Iterable[Message]) -> None:
        """Add pulled messages and wake one waiting task."""
        self._messages.extend(messages)
        self._call_one()

    def _call_one(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def take(self) -> Message | None:
        """Return the next message, or None if there is none now. If more are left, the next waiting task is woken."""
        while self._messages:
            message = self._messages.popleft()
            if self._hand_out(message):
                if self._messages:
                    self._call_one()
                return message
        return None

    def take_rest(self, count: int) -> list[Message]:
        """Return the other messages that are here, at most `count`."""
        return [self._messages.popleft() for _ in range(min(len(self._messages), count))]

    async def wait(self) -> None:
        """Wait until there may be a message, or until the stream has ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                # This task was woken for a message, but cancelled before it took it, for example by a timeout around
                # `anext`. The message is for the next task.
                self._call_one()
            else:
                self._waiting.remove(future)
            raise

    def end(self) -> None:
        """End the stream: wake all waiting tasks."""
        while self._waiting:
            self._call_one()

    def clear(self) -> None:
        """Drop the messages that were not taken."""
        self._messages.clear()
