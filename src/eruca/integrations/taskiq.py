"""A taskiq broker: tasks are messages of one topic, workers are the members of one consumer group.

Why taskiq and not FastStream: taskiq's `AsyncBroker` (startup, shutdown, kick, listen) is public, typed, and documented
as the way to add a broker. FastStream has no such interface. The parts of a broker (`BrokerUsecase`, `Registrator`, the
use cases of subscribers and publishers, the configs) were in `faststream.broker` until 0.5, moved to
`faststream._internal` in 0.6, and changed again in 0.7 (codecs were added, the middlewares of a single subscriber were
removed). As of 0.7.4 none of it is exported. The request to export it (issue 2806 of ag2ai/faststream, meant for 1.0)
states that `_internal` is not stable between versions. Once it is public, a FastStream broker can be added here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from eruca._client.group.settings import Flow
from eruca._client.options import ClientOptions
from eruca._client.produce.producer import Producer
from eruca._client.push.consumer import Consumer
from eruca.errors import ClientClosed, ErucaError

__all__ = ["ErucaBroker"]

_log = logging.getLogger(__name__)


class ErucaBroker(AsyncBroker):
    """Sends tasks as messages and delivers them to workers.

    >>> broker = ErucaBroker("127.0.0.1:9876", topic="mails")
    >>> @broker.task
    ... async def send_mail(to: str) -> None: ...
    >>> await send_mail.kiq("ada")          # and in a shell: taskiq worker module:broker

    A task is done when taskiq acknowledges it: after it ran, by default. If a worker dies before, another worker gets
    the task again: at least once. Eruca brokers remember the tasks behind it that were acknowledged, up to the last
    commit; with a Java broker, those run again too. A task with the label `delay` (in seconds) is delivered that much
    later; it must be one of the broker's delay levels. A topic has four queues by default, and each queue has one
    worker at a time, so more workers than queues are idle. Other arguments are those of Consumer.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        topic: str = "taskiq",
        group: str | None = None,
        options: ClientOptions | None = None,
        **consumer_options: Any,
    ) -> None:
        super().__init__()
        self.topic = topic
        self.group = group or f"{topic}-workers"
        self._nameservers = nameservers
        self._options = options or ClientOptions()
        # A long task at the head of a queue must not delay those after it.
        defaults: dict[str, Any] = {"start": "earliest", "flow": Flow(span_max=None)}
        self._consumer_options = defaults | consumer_options
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    async def startup(self) -> None:
        """Connect; a worker joins the group."""
        await super().startup()
        self._producer = Producer(self._nameservers, group=f"{self.topic}-senders", options=self._options)
        await self._producer.start()
        if self.is_worker_process:
            await self._join()

    async def _join(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                self._nameservers,
                group=self.group,
                subscribe=self.topic,
                options=self._options,
                **self._consumer_options,
            )
            await self._consumer.start()
        return self._consumer

    async def shutdown(self) -> None:
        """Commit what is done, leave the group and disconnect."""
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None
        if self._producer is not None:
            await self._producer.close()
            self._producer = None
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task; its id is the key of the message. Raises SendFailed."""
        if self._producer is None:
            raise ClientClosed("the taskiq broker is not started", hint="await broker.startup() before the first task")
        delay = message.labels.get("delay")
        await self._producer.send(
            self.topic,
            message.message,
            keys=[message.task_id],
            delay=None if delay is None else timedelta(seconds=float(delay)),
        )

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Yield tasks to the worker, each with the function that acknowledges it."""
        async for message in await self._join():
            try:
                body = message.body
            except ErucaError as error:
                # taskiq acknowledges messages that it cannot read as a task, but it never sees this one.
                _log.error("%s cannot be decompressed and becomes a dead letter: %s", message, error)
                await message.bury()
            else:
                yield AckableMessage(data=body, ack=message.ack)
