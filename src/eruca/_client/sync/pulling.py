"""Hand-written parts of the plain pull consumer: iteration, and results with plain messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from eruca._client.pull.consumer import PullConsumer as AsyncPullConsumer
from eruca._client.session.calls import PullStatus
from eruca._client.sync.base import GroupClient, Message, PlainClient
from eruca._client.sync.loopthread import LoopThread
from eruca._wire.bodies import MessageQueue


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of one pull, and the offset of the next one."""

    status: PullStatus
    messages: list[Message]
    next_offset: int
    min_offset: int
    max_offset: int


class PlainPullConsumer(GroupClient[AsyncPullConsumer]):
    """Base of the generated pull consumer.

    One thread polls. A plain `Rebalance(on_change=...)` is called in a thread and may block; functions of `watch` are
    called in the loop of the plain clients and must not.
    """

    @classmethod
    def _show(cls, twin: AsyncPullConsumer, thread: LoopThread) -> Self:
        """Return a plain client for a consumer that was started, and will be closed, by someone else."""
        shown = cls.__new__(cls)
        PlainClient.__init__(shown, twin)
        shown._thread = thread
        shown._is_shown = True
        return shown

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._thread is None and self._is_closed:
            raise StopIteration
        # One by one, so that messages not yet handled do not count as done.
        found = self._run(self._twin.poll(None, 1))
        if not found:
            raise StopIteration
        return Message(found[0], self)

    def _plain_pull(self, queue: MessageQueue, offset: int, *, timeout: Any, **how: Any) -> PullResult:
        found = self._run(self._twin.pull(queue, offset, timeout=timeout, **how), self._find_patience(timeout))
        messages = [Message(message, self) for message in found.messages]
        return PullResult(found.status, messages, found.next_offset, found.min_offset, found.max_offset)
