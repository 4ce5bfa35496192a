"""Committed offsets: how far each group is in each queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eruca.wire.bodies import ConsumerOffsets

_SEPARATOR = "@"


class Offsets:
    """Offsets by topic, group and queue."""

    def __init__(self, table: ConsumerOffsets) -> None:
        self._table: dict[str, dict[int, int]] = {key: dict(queues) for key, queues in table.offset_table.items()}
        self.version = 0

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, -1 for none."""
        queues = self._table.get(f"{topic}{_SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset; it may go back."""
        self._table.setdefault(f"{topic}{_SEPARATOR}{group}", {})[queue_id] = offset
        self.version += 1

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """The offsets of a group in a topic, by queue."""
        return dict(self._table.get(f"{topic}{_SEPARATOR}{group}", {}))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every topic and group with an offset."""
        for key in list(self._table):
            topic, separator, group = key.partition(_SEPARATOR)
            if separator:
                yield topic, group

    def topics_of(self, group: str) -> list[str]:
        """Topics a group has offsets in."""
        return [topic for topic, its_group in self.pairs() if its_group == group]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets in a topic."""
        return [group for its_topic, group in self.pairs() if its_topic == topic]

    def remove_topic(self, topic: str) -> None:
        """Forget the offsets of every group in a topic."""
        self._remove([f"{topic}{_SEPARATOR}{group}" for group in self.groups_of(topic)])

    def remove_group(self, group: str) -> None:
        """Forget the offsets of a group."""
        self._remove([f"{topic}{_SEPARATOR}{group}" for topic in self.topics_of(group)])

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self._table.pop(key, None)
        self.version += 1

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets another has in a topic."""
        queues = self._table.get(f"{topic}{_SEPARATOR}{source}")
        if queues is not None:
            self._table[f"{topic}{_SEPARATOR}{target}"] = dict(queues)
            self.version += 1

    def merge(self, table: ConsumerOffsets) -> None:
        """Take what another broker has; what it does not have stays."""
        for key, queues in table.offset_table.items():
            self._table.setdefault(key, {}).update(queues)
        self.version += 1

    def bound(self, find_end: Callable[[str, int], int]) -> int:
        """Bring offsets that are beyond the end of their queue back to it; gives how many there were.

        The next messages get the offsets in between, and would never be read.
        """
        count = 0
        for key, queues in self._table.items():
            topic = key.partition(_SEPARATOR)[0]
            for queue_id, offset in queues.items():
                if offset > (end := find_end(topic, queue_id)):
                    queues[queue_id] = end
                    count += 1
        self.version += bool(count)
        return count

    def snapshot(self) -> ConsumerOffsets:
        """The table as it is saved and sent to slaves."""
        return ConsumerOffsets(offset_table={key: dict(queues) for key, queues in self._table.items()})
