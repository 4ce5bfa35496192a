"""A message that is sent in the background, and the warning when it fails and nobody looks."""

from __future__ import annotations

import asyncio
import logging

from eruca._client.produce.outgoing import Receipt

log = logging.getLogger(__name__)


class PendingSend(asyncio.Task[Receipt]):
    """The task of one `send_soon`. A failure that nobody awaited is logged, with the topic and the reason."""

    topic = ""

    def __del__(self) -> None:
        # asyncio sets this when a task failed, and clears it when somebody took the exception.
        if self._log_traceback:
            log.warning("a message for %s was not sent, and nobody awaited it: %s", self.topic, self.exception())
        super().__del__()  # type: ignore[misc]  # not in the stubs
