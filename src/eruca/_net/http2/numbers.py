"""Which streams of a connection are idle, and which are closed and how.

A client numbers its streams upwards and hardly ever leaves a number out. So all numbers up to the last are closed if
they are not open, apart from a few gaps; nothing is kept for each of them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from eruca._net.http2.frames import ErrorCode, Http2Error

# Gaps, and streams that we ended while the client was still sending, that are remembered.
_GAPS_MAX: Final = 16
_RESET_MAX: Final = 1024


class StreamNumbers:
    """The streams of one connection."""

    __slots__ = ("_gaps", "_reset", "last")

    def __init__(self) -> None:
        #: The highest stream that was opened.
        self.last = 0
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_GAPS_MAX)
        self._reset: dict[int, None] = {}

    def open(self, number: int) -> None:
        """The client opens a stream. Raises Http2Error if it must not."""
        if not number & 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {number} is not a client's")
        if number <= self.last:
            if any(first <= number <= last for first, last in self._gaps):
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {number} is opened after {self.last}")
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"stream {number} is closed")
        if number > self.last + 2:
            self._gaps.append((self.last + 1, number - 1))
        self.last = number

    def is_idle(self, number: int) -> bool:
        """Whether a stream was never opened."""
        return number > self.last or not number & 1

    def reset(self, number: int) -> None:
        """We ended a stream while the client was still sending: what it has sent already is to be ignored."""
        self._reset[number] = None
        if len(self._reset) > _RESET_MAX:
            del self._reset[next(iter(self._reset))]

    def was_reset(self, number: int) -> bool:
        """Whether we ended a closed stream while the client was still sending."""
        return number in self._reset
