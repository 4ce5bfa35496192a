"""Unreachable servers: one warning when an outage begins and one when it ends, whatever fails in between."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from eruca.errors import NetError, NoRoute

log = logging.getLogger(__name__)


# After this long without a failure an outage is forgotten: the server is no longer in use, so its end will never be
# noticed. If the server is used again and fails, that is a new outage.
_FORGET_S = 300.0


@dataclass(slots=True)
class _Outage:
    """When it began and when it was last noticed, on the monotonic clock."""

    began: float
    noticed: float


class Outages:
    """The servers that a session currently cannot reach, by address, and topics that currently have no route."""

    def __init__(self) -> None:
        self._open: dict[str, _Outage] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def report(self, logger: logging.Logger, server: str, error: BaseException, message: str, *args: object) -> None:
        """Log a failure: as a warning, unless the server is already known to be unreachable."""
        if not isinstance(error, NetError | NoRoute):
            logger.warning(message, *args)
            return
        logger.debug(message, *args)
        now = time.monotonic()
        known = self._open.get(server)
        if known is not None and known.noticed > now - _FORGET_S:
            known.noticed = now
            return
        self._open = {name: each for name, each in self._open.items() if each.noticed > now - _FORGET_S}
        self._open[server] = _Outage(now, now)
        log.warning("%s cannot be reached; retrying until there is an answer: %s", server, error)

    def end(self, server: str) -> None:
        """Note that a server has answered."""
        ended = self._open.pop(server, None)
        if ended is not None:
            log.warning("%s answers again, after %.1f s", server, time.monotonic() - ended.began)
