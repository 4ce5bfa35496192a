"""Messages that are sent in the background; a failure is logged if nobody retrieves the result."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

from eruca._client.produce.outgoing import Receipt

log = logging.getLogger(__name__)


class PendingSend(asyncio.Task[Receipt]):
    """The task of one `send_soon`. A failure that nobody awaits is logged, with the topic and the reason."""

    topic = ""

    def __del__(self) -> None:
        _warn_unseen(self, self.topic)
        super().__del__()


class PendingReceipt(asyncio.Future[Receipt]):
    """The receipt of a message in a batch. A failure that nobody awaits is logged, with the topic and the reason."""

    def __init__(self, topic: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.topic = topic

    def fail(self, error: BaseException) -> None:
        """Report that the message was not stored."""
        if self.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.cancel()
        else:
            self.set_exception(error)

    def __del__(self) -> None:
        _warn_unseen(self, self.topic)
        super().__del__()


class PlainPendingSend(Future[Receipt]):
    """The future of one plain `send_soon`. A failure that nobody retrieves is logged."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self._is_seen = False

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for the receipt and return it. Raises the error of the send if it failed."""
        try:
            return super().result(timeout)
        finally:
            self._is_seen |= self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the send ends and return its error; None if it succeeded."""
        try:
            return super().exception(timeout)
        finally:
            self._is_seen |= self.done()

    def __del__(self) -> None:
        if not self._is_seen and self.done() and not self.cancelled() and (error := super().exception()) is not None:
            _warn(self.topic, error)


def _warn_unseen(future: asyncio.Future[Receipt], topic: str) -> None:
    # asyncio sets this on failure, and clears it once the exception has been retrieved.
    if future._log_traceback:
        _warn(topic, future.exception())


def _warn(topic: str, error: BaseException | None) -> None:
    log.warning("a message for %s was not sent, and nobody awaited it: %s", topic, error)
