"""Guards against hostile peers that are not about bytes: what one peer can make us write into the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_QUIET_SECONDS = 60.0
_PEERS_MAX = 1024


class Reporter:
    """Says once a minute and peer what a peer did wrong, and how often since."""

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now = now
        self._said: dict[str, tuple[float, int]] = {}

    def report(self, who: str, what: str) -> None:
        """Log it, unless the same peer was logged within the last minute."""
        now = self._now()
        last, count = self._said.get(who, (-_QUIET_SECONDS, 0))
        if now - last < _QUIET_SECONDS:
            self._said[who] = (last, count + 1)
            return
        if len(self._said) >= _PEERS_MAX:
            self._said.clear()
        self._said[who] = (now, 0)
        self._log.warning("%s%s", what, f" ({count} more since the last line)" if count else "")
