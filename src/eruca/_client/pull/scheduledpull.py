"""Scheduled pull: a user function is called repeatedly for each of our queues."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from eruca._client.arguments import check_arguments, check_count, check_type
from eruca._client.group.settings import Flow, Offsets, Rebalance, Start
from eruca._client.namespaces import name_topic, unwrap, wrap
from eruca._client.options import ClientOptions, choose_options
from eruca._client.pull.consumer import PullConsumer
from eruca._client.stopping import Client, describe_client, find_state, run_until_stopped
from eruca._ground.durations import Duration, to_seconds
from eruca._wire.bodies import MessageQueue
from eruca.errors import ClientClosed, ConfigError, WrongType
from eruca.serializers import Deserializer

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class PullContext:
    """The second argument of a callback: the consumer to pull with, and the delay until the next call."""

    def __init__(self, consumer: PullConsumer, delay_s: float) -> None:
        self.consumer = consumer
        # Seconds until the next call for this queue.
        self.next_delay = delay_s
        self._loop = asyncio.get_running_loop()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for an answer in a plain function: `result = context.wait_for(context.consumer.pull(...))`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


#: A function that a ScheduledPull calls for a queue.
PullCallback: TypeAlias = Callable[[MessageQueue, PullContext], Awaitable[None] | None]
Function = TypeVar("Function", bound=PullCallback)


class ScheduledPull(Client):
    """Calls a function for every queue that is assigned to this member of a group.

    >>> scheduled = ScheduledPull("127.0.0.1:9876", group="billing")
    >>> @scheduled.callback("orders")
    ... async def bill(queue, context):
    ...     offset = await context.consumer.committed(queue)
    ...     result = await context.consumer.pull(queue, offset)
    ...     ...
    ...     await context.consumer.commit({queue: result.next_offset})
    ...     context.next_delay = 0 if result.messages else 1.0
    >>> await scheduled.run()

    There is at most one call at a time for a queue. An exception is logged, and the next call still follows after the
    delay. When a queue moves to another member, its calls stop, but a running call may finish; with
    `Rebalance(exclusive=True)` the other member waits for it. Plain functions run in `threads` threads.
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
        check_count("threads", threads)
        check_type("rebalance", rebalance, Rebalance)
        self.options = choose_options(nameservers, options)
        self.group = group
        self._delay_s = to_seconds("delay", delay)
        self._drain_s = to_seconds("drain", drain)
        self._threads_max = threads
        self._on_change = rebalance.on_change
        self._is_exclusive = rebalance.exclusive
        self._callbacks: dict[str, PullCallback] = {}
        self._schedules: dict[MessageQueue, _Schedule] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._consumer: PullConsumer | None = None
        self._ended = asyncio.Event()

        def make_consumer() -> PullConsumer:
            return PullConsumer(
                group=group,
                subscribe=[unwrap(self.options.namespace, topic) for topic in self._callbacks],
                start=start,
                broadcast=broadcast,
                # The callbacks commit.
                auto_commit=False,
                flow=flow,
                rebalance=replace(rebalance, on_change=self._follow),
                offsets=offsets,
                deserializer=deserializer,
                options=self.options,
            )

        self._make_consumer = make_consumer
        make_consumer()  # raises now instead of later

    def __repr__(self) -> str:
        topics = [unwrap(self.options.namespace, topic) for topic in self._callbacks]
        state = find_state(is_started=self._is_started, was_closed=self._ended.is_set())
        return describe_client(self, self.group, self.options.nameservers, state, topics)

    @property
    def _is_started(self) -> bool:
        return self._consumer is not None

    def callback(self, topic: str) -> Callable[[Function], Function]:
        """Return a decorator that registers a function to be called for the queues of a topic."""
        if callable(topic):
            raise ConfigError(f"topic={topic!r:.80}: expected a topic", hint='@scheduled.callback("topic")')
        wrapped = name_topic(self.options.namespace, topic)

        def register(function: Function) -> Function:
            if not callable(function):
                raise WrongType(f"the callback of {topic} is not a function: {function!r:.80}")
            check_arguments(f"the callback of {topic}", function, "queue", "context")
            if self._consumer is not None:
                raise ConfigError("it is started already", hint="register callbacks before it starts")
            if wrapped in self._callbacks:
                raise ConfigError(f"{topic} has a callback already", hint="a group has one callback per topic")
            self._callbacks[wrapped] = function
            return function

        return register

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and start calling; `async with` does this. Raises ErucaError."""
        if self._consumer is not None:
            return
        if not self._callbacks:
            raise ConfigError("there is no callback", hint='@scheduled.callback("topic")')
        self._ended = asyncio.Event()  # a new one: this may be another event loop
        self._threads = ThreadPoolExecutor(self._threads_max, thread_name_prefix="eruca-pull")
        self._consumer = consumer = self._make_consumer()
        try:
            await consumer.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Start no more calls, wait for running calls, and leave the group. Safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        self._ended.set()
        for schedule in self._schedules.values():
            schedule.end()
        tasks = [schedule.task for schedule in self._schedules.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._drain_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._schedules.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await consumer.close()

    async def run(self) -> None:
        """Run until this task is cancelled or `close` is called, then shut down cleanly.

        SIGTERM, which stops containers, and SIGINT (Ctrl-C) do the same and then end the program, unless the program
        has its own handlers for them.
        """
        await run_until_stopped(self, lambda: self._ended)

    @property
    def consumer(self) -> PullConsumer:
        """The consumer that callbacks pull with. Raises ClientClosed."""
        if self._consumer is None:
            raise ClientClosed("it is not started", hint="use `async with ScheduledPull(...)`, or await start()")
        return self._consumer

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now."""
        return [] if self._consumer is None else self._consumer.assignment

    # -- calling -----------------------------------------------------------------------------------------------------

    async def _follow(self, assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        """Our queues changed: stop the calls for revoked queues, start them for new ones, and notify the user."""
        consumer = self._consumer
        if consumer is not None:
            ending = [self._schedules[queue] for queue in revoked if queue in self._schedules]
            for schedule in ending:
                schedule.end()
            if self._is_exclusive and ending:
                await asyncio.wait([schedule.task for schedule in ending])
            for queue in assigned:
                self._begin(queue, consumer)
        if self._on_change is not None:
            result = self._on_change(assigned, revoked)
            if inspect.isawaitable(result):
                await result

    def _begin(self, queue: MessageQueue, consumer: PullConsumer) -> None:
        known = self._schedules.get(queue)
        if known is not None:
            known.is_wanted = True
        else:
            self._schedules[queue] = schedule = _Schedule()
            schedule.task = asyncio.get_running_loop().create_task(self._call_often(queue, schedule, consumer))

    async def _call_often(self, queue: MessageQueue, schedule: _Schedule, consumer: PullConsumer) -> None:
        function = self._callbacks[wrap(self.options.namespace, queue.topic)]
        while schedule.is_wanted:
            context = PullContext(consumer, self._delay_s)
            if consumer.owns(queue):
                await self._call(function, queue, context)
            try:
                pause_s = max(0.0, float(context.next_delay))
            except (TypeError, ValueError):
                log.error("the callback of %s set next_delay=%r, which is not a number", queue, context.next_delay)
                pause_s = self._delay_s
            await schedule.sleep(pause_s)
        # A queue that comes back from now on starts afresh.
        self._schedules.pop(queue, None)

    async def _call(self, function: PullCallback, queue: MessageQueue, context: PullContext) -> None:
        try:
            if inspect.iscoroutinefunction(function):
                await function(queue, context)
            else:
                loop = asyncio.get_running_loop()
                result = await loop.run_in_executor(self._threads, function, queue, context)
                if inspect.isawaitable(result):
                    await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the consumer is closing
            log.exception("what the callback of %s waited for on queue %s was cancelled", queue.topic, queue)
        except Exception:
            log.exception("the callback of %s failed on queue %s", queue.topic, queue)


class _Schedule:
    """The calls for one queue."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.is_wanted = True
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Start no more calls; a running call may finish."""
        self.is_wanted = False
        self._ending.set()

    async def sleep(self, seconds: float) -> None:
        """Wait for the next call, or for the end."""
        self._ending.clear()
        if not self.is_wanted:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            pass
