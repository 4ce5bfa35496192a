"""`eruca.sync.ScheduledPull`.

Written by `make generate` from `eruca._client.pull.scheduledpull` and
`eruca._client.sync.scheduling`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eruca._client.group.settings import Flow, Offsets, Rebalance, Start
from eruca._client.options import ClientOptions
from eruca._client.pull.scheduledpull import ScheduledPull as AsyncScheduledPull
from eruca._client.sync.pullconsumer import PullConsumer
from eruca._client.sync.scheduling import Function, PlainScheduledPull
from eruca._ground.durations import Duration
from eruca._wire.bodies import MessageQueue
from eruca.serializers import Deserializer


class ScheduledPull(PlainScheduledPull):
    """Calls a function for every queue that is assigned to this member of a group.

    >>> scheduled = ScheduledPull("127.0.0.1:9876", group="billing")
    >>> @scheduled.callback("orders")
    ... def bill(queue, context):
    ...     offset = context.consumer.committed(queue)
    ...     result = context.consumer.pull(queue, offset)
    ...     ...
    ...     context.consumer.commit({queue: result.next_offset})
    ...     context.next_delay = 0 if result.messages else 1.0
    >>> scheduled.run()

    There is at most one call at a time for a queue. An exception is logged, and the next call still follows after the
    delay. When a queue moves to another member, its calls stop, but a running call may finish; with
    `Rebalance(exclusive=True)` the other member waits for it. Plain functions run in `threads` threads.

    A plain `Rebalance(on_change=...)` is called in a thread and may block.
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
        flow: Flow = Flow(hold=20.0),
        rebalance: Rebalance = Rebalance(),
        offsets: Offsets = Offsets(),
        deserializer: Deserializer[Any] | None = None,
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
                rebalance=self._plain_rebalance(rebalance),
                offsets=offsets,
                deserializer=deserializer,
                drain=drain,
                options=options,
            )
        )

    def callback(self, topic: str) -> Callable[[Function], Function]:
        """Return a decorator that registers a function to be called for the queues of a topic."""
        return self._plain_callback(topic)

    @property
    def consumer(self) -> PullConsumer:
        """The consumer that callbacks pull with. Raises ClientClosed."""
        return self._plain_consumer

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return self._call(lambda: self._twin.queues)
