"""Hand-written parts of the plain producer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Generic

from eruca._client.produce.bodies import Body
from eruca._client.produce.outgoing import Receipt
from eruca._client.produce.pending import PlainPendingSend
from eruca._client.produce.producer import Producer as AsyncProducer
from eruca._client.sync.base import GroupClient
from eruca._client.sync.room import Room
from eruca._ground.durations import Duration, to_seconds
from eruca.errors import SendFailed


class PlainProducer(GroupClient[AsyncProducer[Any]], Generic[Body]):
    """Base of the generated producer.

    It may be used by many threads at the same time. `selector` and `hooks` are called in the loop of the plain clients:
    they must not block.
    """

    def __init__(self, twin: AsyncProducer[Body]) -> None:
        super().__init__(twin)
        self._timeout_s = twin._engine.timeout_ms / 1000
        self._room = Room(twin._engine.window.count_max)

    def _find_patience(self, timeout: Duration | None) -> float:
        return self._timeout_s if timeout is None else to_seconds("timeout", timeout)

    def _plain_send_soon(self, topic: str, body: Body, **how: Any) -> Future[Receipt]:
        """Send in the background; returns a future of the receipt. `close` waits for it. Arguments as for `send`.

        If `in_flight_max` messages are in flight, it waits for room for at most the send timeout. Raises SendFailed.
        A failed send whose future is never asked for its result is logged as a warning.

        >>> futures = [producer.send_soon("orders", body) for body in bodies]
        >>> receipts = [future.result() for future in futures]
        """
        thread = self._find_thread()
        thread.check_caller()
        if not self._room.enter(self._timeout_s):
            raise SendFailed(
                f"the message for {topic} was not sent: no room in the send window for {self._timeout_s} s",
                [],
                hint="raise in_flight_max, or send fewer messages at a time",
            )
        future = PlainPendingSend(topic)
        work = self._twin.send(topic, body, **how)
        try:
            thread.post(self._begin_soon, (future, topic, work))
        except BaseException:
            work.close()
            raise
        return future

    def _begin_soon(self, wanted: tuple[Future[Receipt], str, Coroutine[Any, Any, Receipt]]) -> None:
        """In the loop: start sending a message in the background."""
        future, topic, work = wanted
        if not future.set_running_or_notify_cancel():
            work.close()
            self._room.leave()
            return
        task = self._twin._engine.spawn(topic, work)

        def tell(task: asyncio.Task[Receipt]) -> None:
            self._room.leave()
            if task.cancelled():
                future.set_exception(SendFailed(f"the message for {topic} was not sent: the producer was closed", []))
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        task.add_done_callback(tell)
