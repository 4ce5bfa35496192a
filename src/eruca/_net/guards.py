"""Guards against hostile peers that are not about bytes: a limit on the log lines that one peer can cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from eruca._net.networks import find_network

_QUIET_SECONDS = 60.0
_PEERS_MAX = 1024
# Who share one line when there are more.
_OTHERS = "others"


class Reporter:
    """Logs the misbehaviour of each peer at most `lines_max` times a minute, with the number of suppressed lines.

    In a minute with very many peers, all further ones count as one, so that a crowd cannot fill a disk with log lines.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic, *, lines_max: int = 1) -> None:
        self._log = log
        self._now = now
        self._lines_max = lines_max
        # When the current minute of a peer started, and the number of reports since; the oldest minute comes first.
        self._said: dict[str, tuple[float, int]] = {}

    def report_peer(self, host: str, what: str) -> None:
        """Log what the peer at an address did. An IPv6 network counts as one address."""
        self.report(find_network(host), what)

    def report(self, who: str, what: str) -> None:
        """Log it, unless the same peer has reached its limit within the last minute."""
        now = self._now()
        if who not in self._said and not self._has_room(now):
            who = _OTHERS
        began, count = self._said.get(who, (-_QUIET_SECONDS, 0))
        if now - began < _QUIET_SECONDS:
            self._said[who] = (began, count + 1)
            if count < self._lines_max:
                self._log.warning("%s", what)
            return
        self._said.pop(who, None)
        self._said[who] = (now, 1)
        missed = count - self._lines_max
        self._log.warning("%s%s", what, f" ({missed} more since the last line)" if missed > 0 else "")

    def _has_room(self, now: float) -> bool:
        """Return whether one more peer may have lines of its own, after forgetting those whose minute is over."""
        while len(self._said) >= _PEERS_MAX:
            who, (began, _) = next(iter(self._said.items()))
            if now - began < _QUIET_SECONDS:
                return False
            del self._said[who]
        return True
