"""Message trace: gathers what producers and consumers did and sends it to the trace topic, never in anyone's way."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from eruca._ground.clock import Clock
from eruca._ground.limits import PROPERTIES_BYTES_MAX
from eruca._net.guards import Reporter
from eruca._wire.names import TRACE_TOPIC
from eruca._wire.trace import TraceRecord, encode_trace, list_trace_keys

log = logging.getLogger(__name__)

# Java gives up on a trace message after as long.
_SEND_SECONDS_MAX = 5.0
# How long a task that was told to end may take to do so.
_GOODBYE_SECONDS = 1.0
# The keys of a trace message share its properties with its own id and the like. Java does not look: a body full of
# short records with long keys is refused by the broker.
_KEYS_BYTES_MAX = PROPERTIES_BYTES_MAX - 2048

Send = Callable[[str, bytes, list[str]], Awaitable[None]]


class _Bundle:
    """One trace message in the making."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.body_bytes = 0
        # In the order in which they came, each once.
        self.keys: dict[str, None] = {}
        self.keys_bytes = 0

    def has_room(self, encoded: bytes, keys: dict[str, int], body_max: int) -> bool:
        """May a record go in? The first one always may: no other message has more room for it."""
        keys_bytes = self.keys_bytes + sum(size for key, size in keys.items() if key not in self.keys)
        return not self.records or (self.body_bytes + len(encoded) <= body_max and keys_bytes <= _KEYS_BYTES_MAX)

    def add(self, encoded: bytes, keys: dict[str, int]) -> None:
        """Take a record and its keys, given with their bytes."""
        self.records.append(encoded)
        self.body_bytes += len(encoded)
        for key, size in keys.items():
            if key not in self.keys and self.keys_bytes + size <= _KEYS_BYTES_MAX:
                self.keys[key] = None
                self.keys_bytes += size


class TraceDispatcher:
    """Takes trace records from the loop's tasks and sends them in the background, many in one message.

    What it cannot keep or send it counts and lets go: a trace must not slow down or fail what it traces. `send` gets
    the topic, the body and the keys of each trace message; messages it sends must not be traced themselves.
    """

    def __init__(
        self,
        send: Send,
        *,
        clock: Clock,
        topic: str = TRACE_TOPIC,
        flush_ms: int = 500,
        queue_max: int = 1024,
        body_max: int = 118_000,
    ) -> None:
        self.topic = topic
        # Records that a broker has, that found no room or came too late, and that could not be sent.
        self.sent = 0
        self.dropped = 0
        self.failed = 0
        self._send = send
        self._flush_seconds = flush_ms / 1000
        self._queue_max = queue_max
        self._body_max = body_max
        self._records: deque[TraceRecord] = deque()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._reporter = Reporter(log, clock.monotonic)

    def add(self, record: TraceRecord) -> None:
        """Take a record; it is sent within `flush_ms`, or dropped when there is no room for it."""
        if self._closed or len(self._records) >= self._queue_max:
            self.dropped += 1
            self._reporter.report("full", f"trace records for {self.topic} come too fast or too late and are dropped")
            return
        self._records.append(record)
        if self._task is None or self._task.done():
            # Outside of the loop the record waits for the next one, or for the end.
            with suppress(RuntimeError):
                self._start()
        # By then a message is about full; waiting longer would only fill the queue.
        elif len(self._records) * 2 >= self._queue_max:
            self._hurry.set()

    async def close(self, seconds: float = 3.0) -> None:
        """Send what is left, for at most `seconds`; records that come later are dropped."""
        self._closed = True
        self._hurry.set()
        if self._records and (self._task is None or self._task.done()):
            self._start()
        if self._task is None:
            return
        _, late = await asyncio.wait({self._task}, timeout=seconds)
        if late:
            self._task.cancel()
            await asyncio.wait(late, timeout=_GOODBYE_SECONDS)
        self.dropped += len(self._records)
        self._records.clear()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._records:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._flush_seconds):
                    await self._hurry.wait()
            if not self._closed:
                self._hurry.clear()
            bundles = deque(self._gather())
            try:
                while bundles:
                    await self._send_bundle(bundles[0])
                    bundles.popleft()
            finally:
                self.dropped += sum(len(bundle.records) for bundle in bundles)

    def _gather(self) -> Iterator[_Bundle]:
        """Put the waiting records into as few messages as they fit."""
        records, self._records = self._records, deque()
        bundle = _Bundle()
        for record in records:
            try:
                encoded = encode_trace(record)
                keys = {key: len(key.encode()) + 1 for key in list_trace_keys(record)}
            except ValueError:  # a lone surrogate, for example
                self.failed += 1
                continue
            if not bundle.has_room(encoded, keys, self._body_max):
                yield bundle
                bundle = _Bundle()
            bundle.add(encoded, keys)
        if bundle.records:
            yield bundle

    async def _send_bundle(self, bundle: _Bundle) -> None:
        try:
            async with asyncio.timeout(_SEND_SECONDS_MAX):
                await self._send(self.topic, b"".join(bundle.records), list(bundle.keys))
        except Exception as error:  # whatever it is, nobody else may hear of it
            self.failed += len(bundle.records)
            self._reporter.report("send", f"{len(bundle.records)} trace records for {self.topic} not sent: {error!r}")
        else:
            self.sent += len(bundle.records)
