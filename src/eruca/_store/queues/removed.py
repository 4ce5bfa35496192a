"""Deleted topics, remembered while the log still has records of them.

The records stay in the log until they expire. Without this list a recovery would bring the topic back, and a topic that
was created again would get its old messages instead of its new ones.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from eruca._ground.digits import read_digits
from eruca._store.filesystem import FileSystem
from eruca._store.jsonfile import JsonFile

# Separates a topic from a queue number; a topic name cannot contain it.
_OF_QUEUE = "/"


def _decode(data: bytes) -> dict[str, int]:
    # Not the method of a decoder: Spark sends the list to its tasks, and a decoder cannot be pickled.
    return msgspec.json.decode(data, type=dict[str, int])


class RemovedTopics:
    """For each deleted topic, the position before which its records are ignored."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._file = JsonFile(disk, path, _decode)
        self._positions: dict[str, int] = {}
        # On a slave: queues that started over, which shows that the master created their topic again.
        self._of_queues: dict[tuple[str, int], int] = {}

    def load(self, log_start: int) -> None:
        """Read the list, leaving out topics whose records have all expired."""
        for name, position in self._file.read_or({}, "deleted topics may come back").items():
            topic, _, queue = name.partition(_OF_QUEUE)
            queue_id = read_digits(queue)
            if position > log_start and queue_id is not None:
                self._of_queues[topic, queue_id] = position
            elif position > log_start:
                self._positions[topic] = position

    @property
    def positions(self) -> dict[str, int]:
        """The position for each topic, and for each queue that started over, written as `topic/queue`."""
        of_queues = {f"{topic}{_OF_QUEUE}{queue_id}": at for (topic, queue_id), at in self._of_queues.items()}
        return self._positions | of_queues

    @property
    def is_empty(self) -> bool:
        """Does the log have no records of deleted topics?"""
        return not self._positions and not self._of_queues

    def add(self, topic: str, position: int) -> None:
        """Note that a topic was deleted as of a position; `save` makes it durable."""
        self._positions[topic] = position

    def add_queue(self, topic: str, queue_id: int, position: int) -> None:
        """Note that a queue started over at a position; `save` makes it durable."""
        self._of_queues[topic, queue_id] = position

    def lower_to(self, position: int) -> bool:
        """Lower positions beyond a cut of the log to the cut; True when one changed."""
        lowered = {topic: min(at, position) for topic, at in self._positions.items()}
        of_queues = {queue: min(at, position) for queue, at in self._of_queues.items()}
        changed = (lowered, of_queues) != (self._positions, self._of_queues)
        self._positions, self._of_queues = lowered, of_queues
        return changed

    def save(self) -> None:
        """Write the list; may run in a thread."""
        self._file.write(self.positions)

    def covers(self, topic: str, queue_id: int, position: int) -> bool:
        """Was the topic of a record at this position deleted after it?"""
        if self._positions and position < self._positions.get(topic, 0):
            return True
        return bool(self._of_queues) and position < self._of_queues.get((topic, queue_id), 0)
