"""Handing calls from threads to the loop: calls that arrive together wake it once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Handover:
    """Takes calls from any thread and runs them in the loop, in the order in which they were posted.

    Waking a loop costs a system call and contention for the interpreter lock. While one wake-up is pending, further
    calls are only added to the queue.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._is_called = False

    def post(self, function: Callable[[Any], object], argument: object) -> None:
        """Schedule `function(argument)` to be called in the loop. Raises RuntimeError when the loop is closed."""
        self._line.append((function, argument))
        if not self._is_called:
            try:
                self._is_called = True
                self._loop.call_soon_threadsafe(self._make_calls)
            except BaseException:
                # An interrupt may arrive anywhere here; if the mark stayed set, the loop would never be woken again.
                self._is_called = False
                raise

    def _make_calls(self) -> None:
        # Clear the mark before reading the count: a call added after the count then finds it clear and wakes the loop.
        self._is_called = False
        line = self._line
        for _ in range(len(line)):
            function, argument = line.popleft()
            try:
                function(argument)
            except Exception:
                log.exception("a call handed over to the loop failed")
