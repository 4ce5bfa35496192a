"""Committed offsets: the progress of each group in each queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from eruca._broker.options import LiveOptions
from eruca._broker.tableroom import TableRoom
from eruca._wire.bodies import ConsumerOffsets, DoneBehind
from eruca._wire.codes import ResponseCode
from eruca._wire.done import cut_done, decode_done
from eruca.errors import RequestRefused, TableFull, WireError

log = logging.getLogger(__name__)

_SEPARATOR: Final = "@"
# Bytes of an offset in the table with every number at its longest, and of a pair besides its two names.
_OFFSET_BYTES: Final = 36
_PAIR_BYTES: Final = 16

_Queues: TypeAlias = dict[int, int]
# For each queue of a group, the messages behind its offset that are done.
_Done: TypeAlias = dict[int, str]


class Offsets:
    """Offsets by topic, group and queue."""

    def __init__(
        self, options: LiveOptions, table: ConsumerOffsets, check_new: Callable[[str, str, int], None]
    ) -> None:
        """`check_new` raises an error if a group, topic and queue without an offset may not get one."""
        self._topics: dict[str, dict[str, _Queues]] = {}
        # Entries under keys that do not name a topic and a group; they are kept as they are.
        self._strange: dict[str, _Queues] = {}
        # The messages behind the offsets that are done, by topic and group. They belong to one offset: whatever sets
        # another one removes them.
        self._done: dict[tuple[str, str], _Done] = {}
        self._bytes = 0
        self._count = 0
        self.version = 0
        self._room = TableRoom("offsets", options, "offsets_max", self._measure, log)
        self._check_new = check_new
        self.merge(table)

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset; -1 if there is none."""
        groups = self._topics.get(topic)
        queues = None if groups is None else groups.get(group)
        return -1 if queues is None else queues.get(queue_id, -1)

    def get_done(self, group: str, topic: str, queue_id: int, end: int) -> str:
        """Return which messages behind the committed offset are done, of those below the end of the queue."""
        text = self._done.get((topic, group), {}).get(queue_id, "")
        return text and cut_done(self.get(group, topic, queue_id), text, end)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, done: str = "") -> None:
        """Commit an offset from a peer, and which messages behind it are done; it may move backwards.

        Raises an ErucaError if it is invalid.
        """
        if offset < 0:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"commitOffset[{offset}] is negative")
        try:
            decode_done(offset, done)
        except WireError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        groups = self._topics.get(topic)
        queues = None if groups is None else groups.get(group)
        if queues is None or queue_id not in queues:
            self._check_new(group, topic, queue_id)
            self._check_room(group, topic, 1)
        self.put(group, topic, queue_id, offset)
        if done:
            self._put_done(group, topic, queue_id, done)

    def _put_done(self, group: str, topic: str, queue_id: int, done: str) -> None:
        try:
            self._room.check(f"what group {group} has done in topic {topic} cannot be stored", 0, len(done))
        except TableFull:
            return  # it is reported; the offset counts, and these messages are delivered again after a crash
        self._done.setdefault((topic, group), {})[queue_id] = done
        self._bytes += len(done)

    def _forget_done(self, topic: str, group: str, queue_id: int) -> None:
        queues = self._done.get((topic, group))
        if queues is None or queue_id not in queues:
            return
        self._bytes -= len(queues.pop(queue_id))
        if not queues:
            del self._done[topic, group]

    def _check_room(self, group: str, topic: str, count: int) -> None:
        size = count * _OFFSET_BYTES
        if group not in self._topics.get(topic, {}):
            size += _weigh_pair(topic, group)
        self._room.check(f"the offset of group {group} in topic {topic} cannot be stored", count, size)

    def _measure(self) -> tuple[int, int]:
        return self._count, self._bytes

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit one of the broker's own offsets, or one that was already checked."""
        queues = self._get_queues(topic, group)
        if queue_id not in queues:
            self._add(1)
        elif self._done:
            self._forget_done(topic, group, queue_id)
        queues[queue_id] = offset
        self.version += 1

    def _add(self, count: int) -> None:
        self._count += count
        self._bytes += count * _OFFSET_BYTES

    def _get_queues(self, topic: str, group: str) -> _Queues:
        groups = self._topics.get(topic)
        if groups is None:
            groups = self._topics[topic] = {}
        queues = groups.get(group)
        if queues is None:
            queues = groups[group] = {}
            self._bytes += _weigh_pair(topic, group)
        return queues

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return the offsets of a group in a topic, by queue."""
        return dict(self._topics.get(topic, {}).get(group, {}))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Iterate over every topic and group with an offset."""
        for topic, groups in list(self._topics.items()):
            for group in list(groups):
                yield topic, group

    def count_pairs(self) -> int:
        """Count the pairs of topic and group with an offset."""
        return sum(map(len, self._topics.values()))

    def has(self, group: str, topic: str) -> bool:
        """Whether a group has offsets in a topic."""
        return group in self._topics.get(topic, ())

    def topics_of(self, group: str) -> list[str]:
        """List the topics a group has offsets in."""
        return [topic for topic, groups in self._topics.items() if group in groups]

    def groups_of(self, topic: str) -> list[str]:
        """List the groups that have offsets in a topic."""
        return list(self._topics.get(topic, ()))

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of every group in a topic."""
        for group in self.groups_of(topic):
            self._remove(topic, group)
        self.version += 1

    def remove_group(self, group: str) -> None:
        """Remove the offsets of a group."""
        for topic in self.topics_of(group):
            self._remove(topic, group)
        self.version += 1

    def _remove(self, topic: str, group: str) -> None:
        groups = self._topics[topic]
        for queue_id in list(self._done.get((topic, group), ())):
            self._forget_done(topic, group, queue_id)
        self._bytes -= _weigh_pair(topic, group)
        self._add(-len(groups.pop(group)))
        if not groups:
            del self._topics[topic]

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of one group in a topic to another group. Raises TableFull."""
        queues = self.queues(source, topic)
        if queues:
            self._check_room(target, topic, len(queues))
            if target in self._topics[topic]:
                self._remove(topic, target)
            self._take(topic, target, queues)

    def merge(self, table: ConsumerOffsets) -> None:
        """Adopt the offsets of another broker, and what is done behind them; offsets it does not have stay."""
        self.forget_done()
        for key, queues in table.offset_table.items():
            topic, separator, group = key.partition(_SEPARATOR)
            if separator:
                self._take(topic, group, queues)
            else:
                self._strange.setdefault(key, {}).update(queues)
        for item in table.eruca_done or ():
            self._take_done(item)
        self.version += 1

    def _take(self, topic: str, group: str, queues: _Queues) -> None:
        known = self._get_queues(topic, group)
        before = len(known)
        known.update(queues)
        self._add(len(known) - before)
        self.version += 1

    def _take_done(self, item: DoneBehind) -> None:
        offset = self.get(item.group, item.topic, item.queue_id)
        if offset < 0:
            return
        try:
            decode_done(offset, item.done)
        except WireError as error:
            log.warning("messages of %s that group %s has done are delivered again: %s", item.topic, item.group, error)
            return
        self._forget_done(item.topic, item.group, item.queue_id)
        self._put_done(item.group, item.topic, item.queue_id, item.done)

    def bound(self, find_end: Callable[[str, int], int]) -> int:
        """Move offsets beyond the end of their queue back to the end; return how many there were.

        Otherwise the next messages would get the offsets in between, and would never be read.
        """
        self.bound_done(find_end)
        count = 0
        for topic, groups in self._topics.items():
            for queues in groups.values():
                for queue_id, offset in queues.items():
                    if offset > (end := find_end(topic, queue_id)):
                        queues[queue_id] = end
                        count += 1
        self.version += bool(count)
        return count

    def bound_done(self, find_end: Callable[[str, int], int]) -> None:
        """Forget what is done beyond the end of its queue: these offsets are those of other messages now."""
        for (topic, group), done in list(self._done.items()):
            for queue_id in list(done):
                left = self.get_done(group, topic, queue_id, find_end(topic, queue_id))
                self._forget_done(topic, group, queue_id)
                if left:
                    self._put_done(group, topic, queue_id, left)

    def forget_done(self) -> None:
        """Forget what is done behind the offsets: the log may be cut, and get other messages at these offsets."""
        self._bytes -= sum(len(done) for queues in self._done.values() for done in queues.values())
        self._done.clear()

    def snapshot(self) -> ConsumerOffsets:
        """Return the table as it is saved and sent to slaves."""
        table = {
            f"{topic}{_SEPARATOR}{group}": dict(queues)
            for topic, groups in self._topics.items()
            for group, queues in groups.items()
        }
        done = [
            DoneBehind(done=text, group=group, queue_id=queue_id, topic=topic)
            for (topic, group), queues in self._done.items()
            for queue_id, text in queues.items()
        ]
        return ConsumerOffsets(
            eruca_done=done or None,
            offset_table=table | {key: dict(queues) for key, queues in self._strange.items()},
        )


def _weigh_pair(topic: str, group: str) -> int:
    return len(topic) + len(group) + _PAIR_BYTES
