"""Topics that were deleted, kept as long as the log still has records of theirs.

The records stay in the log until they expire. Without this list a recovery would bring the topic back, and a topic that
was made again would get its old messages instead of its new ones.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from eruca.store.filesystem import FileSystem, replace_file

log = logging.getLogger(__name__)


class RemovedTopics:
    """For each deleted topic the position before which its records count for nothing."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._positions: dict[str, int] = {}

    def load(self, log_start: int) -> None:
        """Read the list; topics whose records have all expired are forgotten."""
        if not self._disk.exists(self._path):
            return
        try:
            found = msgspec.json.decode(self._disk.read_file(self._path), type=dict[str, int])
        except msgspec.MsgspecError as error:
            log.error("%s is unreadable, deleted topics may come back: %s", self._path, error)
            return
        self._positions = {topic: position for topic, position in found.items() if position > log_start}

    @property
    def positions(self) -> dict[str, int]:
        """The position for each topic."""
        return dict(self._positions)

    def add(self, topic: str, position: int) -> None:
        """Note that a topic is deleted as of a position; `save` makes it last."""
        self._positions[topic] = position

    def save(self) -> None:
        """Write the list; may run in a thread."""
        replace_file(self._disk, self._path, msgspec.json.encode(self._positions))

    def covers(self, topic: str, position: int) -> bool:
        """Was the topic of a record at this position deleted after it?"""
        return bool(self._positions) and position < self._positions.get(topic, 0)
