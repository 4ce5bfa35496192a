"""What is noticed of consuming: counts, times, and whoever wants to be told of each message."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeAlias

from eruca._client.message import Message, Outcome
from eruca._client.meters import ConsumeMeter
from eruca._observe.telemetry import Telemetry, find_telemetry
from eruca._wire.bodies import ConsumeStatus

log = logging.getLogger(__name__)

# Has a handler work on messages, and returns how that ended.
Work: TypeAlias = Callable[[list[Message]], Awaitable[Outcome]]

_WINDOW_S = 60.0


class ConsumeHook(Protocol):
    """Is told of messages before and after a handler works on them. What it raises is logged and goes no further."""

    def before_consume(self, messages: list[Message]) -> object:
        """A handler is about to begin; what this returns is passed to `after_consume`."""

    def after_consume(self, messages: list[Message], outcome: Outcome, spent_ms: int, begun: object) -> None:
        """It has ended."""


class _Tally:
    """Counts of one topic: those of the whole life, and those since the last full minute."""

    def __init__(self, meter: ConsumeMeter) -> None:
        self.failed = 0
        self._meter = meter
        self._began = time.monotonic()
        self._ok = self._bad = 0
        self._spent = 0.0

    def add(self, count: int, is_done: bool, spent_s: float) -> None:
        """Count one call of a handler."""
        self._meter.add(count, is_done, spent_s)
        if is_done:
            self._ok += count
        else:
            self._bad += count
            self.failed += count
        self._spent += spent_s

    def read(self) -> ConsumeStatus:
        """The rates of the last minute."""
        seconds = time.monotonic() - self._began
        calls = self._ok + self._bad
        status = ConsumeStatus(
            consume_failed_msgs=self.failed,
            consume_failed_tps=self._bad / max(seconds, 1.0),
            consume_ok_tps=self._ok / max(seconds, 1.0),
            consume_rt=self._spent * 1000 / calls if calls else 0.0,
        )
        if seconds >= _WINDOW_S:
            self._began, self._ok, self._bad, self._spent = time.monotonic(), 0, 0, 0.0
        return status


class ConsumeObserver:
    """Counts what handlers do and tells hooks."""

    def __init__(self, group: str, hooks: Iterable[ConsumeHook] = ()) -> None:
        self.hooks = list(hooks)
        self._group = group
        self._telemetry: Telemetry | None = None
        self._tallies: dict[str, _Tally] = {}

    def start(self) -> None:
        """Find who wants to be told of spans now: a program may set its providers after it has made its consumers."""
        self._telemetry = find_telemetry()

    @property
    def is_watched(self) -> bool:
        """Does anybody want to be told of each message?"""
        return bool(self.hooks) or self._telemetry is not None

    def count(self, topic: str, count: int, is_done: bool, spent_s: float) -> None:
        """Count one call of a handler."""
        tally = self._tallies.get(topic)
        if tally is None:
            tally = self._tallies[topic] = _Tally(ConsumeMeter(self._group, topic))
        tally.add(count, is_done, spent_s)

    def read(self, topic: str) -> ConsumeStatus:
        """How fast a topic is consumed."""
        tally = self._tallies.get(topic)
        return ConsumeStatus() if tally is None else tally.read()

    async def consume(self, work: Work, messages: list[Message]) -> Outcome:
        """Have a handler work, with hooks told before and after."""
        begun = [self._tell_before(hook, messages) for hook in self.hooks]
        started = time.monotonic()
        outcome = await self._call(work, messages)
        spent_ms = round((time.monotonic() - started) * 1000)
        for hook, note in zip(self.hooks, begun, strict=True):
            try:
                hook.after_consume(messages, outcome, spent_ms, note)
            except Exception:
                log.exception("a hook failed after consuming")
        return outcome

    async def _call(self, work: Work, messages: list[Message]) -> Outcome:
        if self._telemetry is None:
            return await work(messages)
        first = messages[0]
        with self._telemetry.process(
            first.topic,
            self._group,
            *[message.all_properties for message in messages],
            server=first.store_host,
            queue_id=first.queue.queue_id,
        ) as operation:
            outcome = await work(messages)
            if outcome not in (Outcome.DONE, Outcome.COMMIT):
                operation.fail(outcome.value)
        return outcome

    def _tell_before(self, hook: ConsumeHook, messages: list[Message]) -> object:
        try:
            return hook.before_consume(messages)
        except Exception:
            log.exception("a hook failed before consuming")
            return None
