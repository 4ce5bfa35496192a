"""Work that a peer causes without calling anything: frames that are cheap to send are counted.

A client sends some of them with every call: it acknowledges what it got, measures its round trip, cancels calls. So
each useful frame allows a few more, and time allows more, up to a limit.
"""

from __future__ import annotations

from typing import Final

from eruca._ground.limits import HTTP2_IDLE_FRAMES_MAX, HTTP2_IDLE_FRAMES_PER_SECOND
from eruca._net.http2.frames import ErrorCode, Http2Error

#: What a frame costs, one that makes us answer with one, and one that ends a call: what was done for it is lost.
PLAIN: Final = 1
ANSWERED: Final = 4
RESET: Final = 8
# What a message of a call allows.
_USEFUL: Final = 4


class Floods:
    """The frames of one connection."""

    __slots__ = ("_left", "_refilled_at")

    def __init__(self, now: float) -> None:
        self._left = float(HTTP2_IDLE_FRAMES_MAX)
        self._refilled_at = now

    def grant(self) -> None:
        """Something useful was received or sent."""
        self._left += _USEFUL

    def count(self, cost: int, now: float, what: str) -> None:
        """Count a frame. Raises Http2Error if there were too many."""
        self._left -= cost
        if self._left < 0 or self._left > HTTP2_IDLE_FRAMES_MAX:
            self._left += (now - self._refilled_at) * HTTP2_IDLE_FRAMES_PER_SECOND
            self._left = min(self._left, float(HTTP2_IDLE_FRAMES_MAX))
            self._refilled_at = now
            if self._left < 0:
                raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"too many frames that do nothing, such as {what}")
