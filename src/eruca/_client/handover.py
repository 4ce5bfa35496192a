"""From threads to the loop: calls that come together wake it once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Handover:
    """Takes calls from any thread and makes them in the loop, in the order they came.

    Waking a loop is a system call and a fight for the interpreter's lock; while one wake is under way, further calls
    only join the line.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._is_called = False

    def post(self, function: Callable[[Any], object], argument: object) -> None:
        """Have `function(argument)` called in the loop soon. Raises RuntimeError when the loop is closed."""
        self._line.append((function, argument))
        if not self._is_called:
            try:
                self._is_called = True
                self._loop.call_soon_threadsafe(self._make_calls)
            except BaseException:
                # An interrupt may come at any place here; with the mark left up nobody would ever call again.
                self._is_called = False
                raise

    def _make_calls(self) -> None:
        # First the mark, then the count: who joins the line after the count finds the mark down and calls again.
        self._is_called = False
        line = self._line
        for _ in range(len(line)):
            function, argument = line.popleft()
            try:
                function(argument)
            except Exception:
                log.exception("a call handed over to the loop failed")
