"""Calling a user's function with the queues that were assigned and revoked."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable

from eruca._client.group.settings import OnChange
from eruca._client.namespaces import unwrap_queue
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import RETRY_PREFIX

log = logging.getLogger(__name__)


class QueueChanges:
    """Calls the listener of one consumer. Each queue is reported as assigned once before it is reported as revoked."""

    def __init__(self, listener: OnChange | None, namespace: str) -> None:
        self._listener = listener
        self._namespace = namespace
        # Reported as assigned, and not reported as revoked since.
        self._told: set[MessageQueue] = set()
        # One call at a time: exclusive queues are released concurrently.
        self._turn = asyncio.Lock()

    async def tell(self, assigned: Iterable[MessageQueue], revoked: Iterable[MessageQueue]) -> None:
        """Call the listener with the changes, and wait for it. Exceptions it raises are logged and not propagated."""
        if self._listener is not None:
            async with self._turn:
                await self._call(self._listener, assigned, revoked)

    async def _call(
        self, listener: OnChange, assigned: Iterable[MessageQueue], revoked: Iterable[MessageQueue]
    ) -> None:
        came = [queue for queue in assigned if not queue.topic.startswith(RETRY_PREFIX) and queue not in self._told]
        went = [queue for queue in revoked if queue in self._told]
        if not came and not went:
            return
        self._told.update(came)
        self._told.difference_update(went)
        try:
            result = listener(self._show(came), self._show(went))
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the consumer is closing
            log.exception("what Rebalance.on_change awaited was cancelled")
        except Exception:
            log.exception("Rebalance.on_change failed")

    async def tell_last(self, timeout_s: float) -> None:
        """Report every queue as revoked, because the consumer is closing."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.tell([], list(self._told))
        except TimeoutError:
            log.warning("Rebalance.on_change did not return within %.0f s", timeout_s)

    def _show(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        return sorted([unwrap_queue(self._namespace, queue) for queue in queues])
