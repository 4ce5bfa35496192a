"""Hand-written parts of the plain scheduled pull: callbacks that get plain clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from eruca._client.pull.scheduledpull import PullContext as AsyncPullContext
from eruca._client.pull.scheduledpull import ScheduledPull as AsyncScheduledPull
from eruca._client.push.handlers import is_async_function
from eruca._client.sync.base import RunningClient
from eruca._client.sync.pullconsumer import PullConsumer
from eruca._wire.bodies import MessageQueue

Function = TypeVar("Function", bound=Callable[..., Any])


class PullContext:
    """Passed to a callback with its queue: the consumer to pull with, and the delay until the next call."""

    def __init__(self, consumer: PullConsumer, twin: AsyncPullContext) -> None:
        self.consumer = consumer
        self._twin = twin

    @property
    def next_delay(self) -> float:
        """Seconds until the next call for this queue."""
        return self._twin.next_delay

    @next_delay.setter
    def next_delay(self, seconds: float) -> None:
        self._twin.next_delay = seconds


#: A function that a ScheduledPull calls for a queue.
PullCallback: TypeAlias = Callable[[MessageQueue, PullContext], None]


class PlainScheduledPull(RunningClient[AsyncScheduledPull]):
    """Base of the generated scheduled pull.

    A plain `Rebalance(on_change=...)` is called in a thread and may block.
    """

    def _plain_callback(self, topic: str) -> Callable[[Function], Function]:
        register_twin: Callable[[Callable[..., Any]], object] = self._twin.callback(topic)

        def register(function: Function) -> Function:
            given: object = function
            if is_async_function(function) or not callable(given):  # what cannot be called is refused there
                register_twin(function)
            else:
                register_twin(self._make_plain(function, self._convert))
            return function

        return register

    def _convert(self, queue: MessageQueue, context: AsyncPullContext) -> tuple[MessageQueue, PullContext]:
        return queue, PullContext(PullConsumer._show(context.consumer, self._find_thread()), context)

    @property
    def _plain_consumer(self) -> PullConsumer:
        thread = self._find_thread()
        return PullConsumer._show(self._twin.consumer, thread)
