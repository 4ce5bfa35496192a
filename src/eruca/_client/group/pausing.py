"""Which queues the user does not want anything of now, also of those that come later."""

from __future__ import annotations

from collections.abc import Iterable

from eruca._wire.bodies import MessageQueue


class Pauses:
    """What was paused and not resumed since: single queues, or all but some."""

    def __init__(self) -> None:
        self._everything = False
        # Queues that are not as `_everything` says.
        self._others: set[MessageQueue] = set()

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Pause these queues, or all: those of now and those that a later rebalance brings."""
        self._change(queues, is_paused=True)

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """The opposite of `pause`."""
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
        """Is a queue paused?"""
        return self._everything is not (queue in self._others)
