"""The plain scheduled pull."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from eruca._client.group.settings import Flow, Offsets, Rebalance, Start
from eruca._client.message import Decode
from eruca._client.options import ClientOptions
from eruca._client.pull.scheduledpull import PullContext as AsyncPullContext
from eruca._client.pull.scheduledpull import ScheduledPull as AsyncScheduledPull
from eruca._client.push.handlers import is_async_function
from eruca._client.sync.base import RunningClient, make_listener_plain
from eruca._client.sync.pullconsumer import PullConsumer
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue

Function = TypeVar("Function", bound=Callable[..., Any])


class PullContext:
    """What a callback gets beside its queue: the consumer to pull with, and a say in when it is called again."""

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


class ScheduledPull(RunningClient[AsyncScheduledPull]):
    """Calls a function for every queue that is ours in balance with the other members of a group.

    >>> scheduled = ScheduledPull("127.0.0.1:9876", group="billing")
    >>> @scheduled.callback("orders")
    ... def bill(queue, context):
    ...     offset = context.consumer.committed(queue)
    ...     result = context.consumer.pull(queue, offset)
    ...     ...
    ...     context.consumer.commit({queue: result.next_offset})
    ...     context.next_delay = 0 if result.messages else 1.0
    >>> scheduled.run()

    There is one call at a time for a queue; an exception is logged, and the next call comes after the delay all the
    same. A queue that goes to another member is not called for any more, but a call that runs may end. The functions
    run in `threads`. The arguments are those of the async `eruca.ScheduledPull`. A plain
    `Rebalance(on_change=...)` is called in a thread and may block.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str,
        delay: Duration = 0.2,
        threads: int = 20,
        start: Start = "latest",
        broadcast: bool = False,
        flow: Flow = Flow(hold=20.0),  # noqa: B008
        rebalance: Rebalance = Rebalance(),  # noqa: B008
        offsets: Offsets = Offsets(),  # noqa: B008
        deserializer: Decode | None = None,
        drain: Duration = 30.0,
        options: ClientOptions | None = None,
    ) -> None:
        super().__init__(
            AsyncScheduledPull(
                nameservers,
                group=group,
                delay=delay,
                threads=threads,
                start=start,
                broadcast=broadcast,
                flow=flow,
                rebalance=make_listener_plain(rebalance),
                offsets=offsets,
                deserializer=deserializer,
                drain=drain,
                options=options,
            )
        )

    def callback(self, topic: str) -> Callable[[Function], Function]:
        """Have a function called for the queues of a topic; use it as a decorator."""
        register_twin: Callable[[Callable[..., Any]], object] = self._twin.callback(topic)

        def register(function: Function) -> Function:
            given: object = function
            if is_async_function(function) or not callable(given):  # what cannot be called is refused there
                register_twin(function)
                return function

            register_twin(self._make_plain(function, self._convert))
            return function

        return register

    def _convert(self, queue: MessageQueue, context: AsyncPullContext) -> tuple[MessageQueue, PullContext]:
        return queue, PullContext(PullConsumer._show(context.consumer, self._find_thread()), context)

    @property
    def consumer(self) -> PullConsumer:
        """The consumer that callbacks pull with. Raises ClientClosed."""
        thread = self._find_thread()
        return PullConsumer._show(self._twin.consumer, thread)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._call(lambda: self._twin.queues)
