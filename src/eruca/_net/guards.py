"""Guards against hostile peers that are not about bytes: a limit on the log lines that one peer can cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_QUIET_SECONDS = 60.0
_PEERS_MAX = 1024


class Reporter:
    """Logs the misbehaviour of each peer at most `lines_max` times a minute, with the number of suppressed lines."""

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic, *, lines_max: int = 1) -> None:
        self._log = log
        self._now = now
        self._lines_max = lines_max
        # When the current minute of a peer started, and the number of reports since.
        self._said: dict[str, tuple[float, int]] = {}

    def report(self, who: str, what: str) -> None:
        """Log it, unless the same peer has reached its limit within the last minute."""
        now = self._now()
        began, count = self._said.get(who, (-_QUIET_SECONDS, 0))
        if now - began < _QUIET_SECONDS:
            self._said[who] = (began, count + 1)
            if count < self._lines_max:
                self._log.warning("%s", what)
            return
        if len(self._said) >= _PEERS_MAX:
            self._said.clear()
        self._said[who] = (now, 1)
        missed = count - self._lines_max
        self._log.warning("%s%s", what, f" ({missed} more since the last line)" if missed > 0 else "")
