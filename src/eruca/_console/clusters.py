"""The clusters of one console, by name, each with an admin that lives as long as the console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from eruca._admin.admin import Admin
from eruca.errors import ConfigError

Answer = TypeVar("Answer")

# How long an answer that is expensive to collect is shown to all visitors.
FRESH_S = 3.0
_ANSWERS_MAX = 200


@dataclass(slots=True)
class Remembering:
    """Answers of a cluster that several visitors want at the same time: each is asked for once."""

    _answers: dict[str, tuple[float, asyncio.Task[Any]]] = field(default_factory=dict)

    async def ask(self, key: str, ask: Callable[[], Awaitable[Answer]], fresh_s: float = FRESH_S) -> Answer:
        """Return what was answered at most `fresh_s` ago, or ask; a failure is not remembered."""
        now = time.monotonic()
        known = self._answers.get(key)
        if known is None or now - known[0] > fresh_s or (known[1].done() and _has_failed(known[1])):
            while len(self._answers) >= _ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
            known = (now, asyncio.ensure_future(_run(ask)))
            self._answers[key] = known
        # A visitor who leaves does not end the question of the others.
        answer: Answer = await asyncio.shield(known[1])
        return answer

    def forget(self) -> None:
        """Forget all answers, because something was changed."""
        self._answers.clear()


async def _run(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    return await ask()


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster: its name in the console, its admin, and answers that are remembered for a moment."""

    name: str
    admin: Admin
    # The words of a command that lead to it: `-n 10.0.0.1:9876`.
    words: tuple[str, ...] = ()
    recent: Remembering = field(default_factory=Remembering)


class Clusters:
    """All clusters of a console, in the order in which they were named."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        if not clusters:
            raise ConfigError("the console has no cluster", hint="pass -n HOST:PORT or --cluster NAME=HOST:PORT")
        self._clusters = dict(clusters)

    @property
    def names(self) -> list[str]:
        """The names, the first one first."""
        return list(self._clusters)

    @property
    def all(self) -> list[Cluster]:
        """All of them."""
        return list(self._clusters.values())

    @property
    def first(self) -> Cluster:
        """The one that is shown first."""
        return next(iter(self._clusters.values()))

    def find(self, name: str) -> Cluster | None:
        """Return the cluster with a name."""
        return self._clusters.get(name)

    async def start(self) -> None:
        """Start the admins; no connection is made yet."""
        for cluster in self.all:
            await cluster.admin.start()

    async def stop(self) -> None:
        """Close the admins."""
        for cluster in self.all:
            await cluster.admin.close()
