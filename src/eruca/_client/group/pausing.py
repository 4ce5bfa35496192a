"""Queues that the user has paused, including queues assigned later."""

from __future__ import annotations

from collections.abc import Iterable

from eruca._wire.bodies import MessageQueue


class Pauses:
    """The paused queues: individual queues, or all except some."""

    def __init__(self) -> None:
        self._everything = False
        # Queues that are the opposite of `_everything`.
        self._others: set[MessageQueue] = set()

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Pause these queues, or all: the current ones and those that a later rebalance assigns."""
        self._change(queues, is_paused=True)

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Undo `pause`."""
        self._change(queues, is_paused=False)

    def _change(self, queues: Iterable[MessageQueue] | None, *, is_paused: bool) -> None:
        if queues is None:
            self._everything = is_paused
            self._others.clear()
        elif self._everything is is_paused:
            self._others.difference_update(queues)
        else:
            self._others.update(queues)

    def covers(self, queue: MessageQueue) -> bool:
        """Return whether a queue is paused."""
        return self._everything is not (queue in self._others)
