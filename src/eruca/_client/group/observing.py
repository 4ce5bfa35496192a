"""Observing consumption: counts, durations, and hooks that are called for each message."""

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

# Runs a handler on messages, and returns the outcome.
Work: TypeAlias = Callable[[list[Message]], Awaitable[Outcome]]

_WINDOW_S = 60.0


class ConsumeHook(Protocol):
    """Called before and after a handler processes messages. Exceptions it raises are logged and not propagated."""

    def before_consume(self, messages: list[Message]) -> object:
        """Called before a handler begins; the return value is passed to `after_consume`."""

    def after_consume(self, messages: list[Message], outcome: Outcome, seconds: float, begun: object) -> None:
        """Called after the handler has ended."""


class Tally:
    """Counts of one topic: in total, and since the last full minute."""

    def __init__(self, group: str, topic: str) -> None:
        self._group = group
        self._topic = topic
        # From the first call on: a topic without messages has no metrics.
        self._meter: ConsumeMeter | None = None
        self._failed = 0
        self._began = 0.0
        self._ok = self._bad = 0
        self._spent = 0.0

    def add(self, count: int, is_done: bool, spent_s: float) -> None:
        """Count one call of a handler."""
        meter = self._meter or self._open()
        meter.add_call(spent_s)
        self._spent += spent_s
        if is_done:
            meter.add_done(count)
            self._ok += count
        else:
            meter.add_failed(count)
            self._bad += count
            self._failed += count

    def _open(self) -> ConsumeMeter:
        self._meter = ConsumeMeter(self._group, self._topic)
        self._began = time.monotonic()
        return self._meter

    def read(self) -> ConsumeStatus:
        """Return the rates of the last minute."""
        if self._meter is None:
            return ConsumeStatus()
        seconds = time.monotonic() - self._began
        calls = self._ok + self._bad
        status = ConsumeStatus(
            consume_failed_msgs=self._failed,
            consume_failed_tps=self._bad / max(seconds, 1.0),
            consume_ok_tps=self._ok / max(seconds, 1.0),
            consume_rt=self._spent * 1000 / calls if calls else 0.0,
        )
        if seconds >= _WINDOW_S:
            self._began, self._ok, self._bad, self._spent = time.monotonic(), 0, 0, 0.0
        return status


class ConsumeObserver:
    """Counts what handlers do and calls hooks."""

    def __init__(self, group: str, hooks: Iterable[ConsumeHook] = ()) -> None:
        self._hooks = list(hooks)
        self._group = group
        self._telemetry: Telemetry | None = None
        self._tallies: dict[str, Tally] = {}
        #: Whether there are hooks to call for each message.
        self.is_watched = bool(self._hooks)

    def start(self) -> None:
        """Look for telemetry providers now: a program may set them after it has created its consumers."""
        self._telemetry = find_telemetry()
        self._look()

    def add_hook(self, hook: ConsumeHook) -> None:
        """Call this hook too."""
        self._hooks.append(hook)
        self._look()

    def remove_hook(self, hook: ConsumeHook) -> None:
        """Call this hook no more."""
        self._hooks.remove(hook)
        self._look()

    def _look(self) -> None:
        self.is_watched = bool(self._hooks) or self._telemetry is not None

    def find_tally(self, topic: str) -> Tally:
        """Return the counts of a topic."""
        tally = self._tallies.get(topic)
        if tally is None:
            tally = self._tallies[topic] = Tally(self._group, topic)
        return tally

    def read(self, topic: str) -> ConsumeStatus:
        """Return how fast a topic is consumed."""
        tally = self._tallies.get(topic)
        return ConsumeStatus() if tally is None else tally.read()

    async def consume(self, work: Work, messages: list[Message]) -> Outcome:
        """Run a handler, with hooks called before and after."""
        begun = [self._tell_before(hook, messages) for hook in self._hooks]
        started = time.monotonic()
        outcome = await self._call(work, messages)
        seconds = time.monotonic() - started
        for hook, note in zip(self._hooks, begun, strict=True):
            try:
                hook.after_consume(messages, outcome, seconds, note)
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
