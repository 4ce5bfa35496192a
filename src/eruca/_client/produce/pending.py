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
        _warn_unseen(self, self.topic)
        super().__del__()


class PendingReceipt(asyncio.Future[Receipt]):
    """The receipt of a message in a batch. A failure that nobody awaited is logged, with the topic and the reason."""

    def __init__(self, topic: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.topic = topic

    def fail(self, error: BaseException) -> None:
        """The message is not stored."""
        if self.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.cancel()
        else:
            self.set_exception(error)

    def __del__(self) -> None:
        _warn_unseen(self, self.topic)
        super().__del__()


def _warn_unseen(future: asyncio.Future[Receipt], topic: str) -> None:
    # asyncio sets this when something failed, and clears it when somebody took the exception.
    if future._log_traceback:
        log.warning("a message for %s was not sent, and nobody awaited it: %s", topic, future.exception())
