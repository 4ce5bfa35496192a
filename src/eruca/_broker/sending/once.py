"""Storing a message once although it is sent again: the broker's half of the idempotent Spark sink.

Each message of such a sink has a mark that says which row of which query it is (`wire.once`). A sender sends the rows
of a partition to a queue in the order of their sequence, and the next ones only when those before are answered. So the
highest sequence that was stored says all: what is not above it is here already and is dropped, and its sender is told
that it is stored. A batch begins when the one before it is over, so what belongs to an older one than the newest is
dropped too, and nothing need be remembered of it.

A power loss may take records out of the middle of what was not synced yet, and leave some behind them. A mark behind
such a place says nothing of those before it: it is remembered by itself, as an island, until they have been sent again.

The marks are in the log, and the log is what counts. The table is saved now and then with the position up to which the
log is in it, and only when the disk has the log up to there; a start reads the marks behind that position. Before the
first mark of a store is stored there must be a table: where there is none, a start reads nothing.

On a slave the marks come with its master's log, and are read from there little by little. Should a part of its log be
cut off because its master does not have it, all that is left is read again.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from eruca._ground.digits import read_digits
from eruca._ground.limits import ONCE_PLACES_MAX, ONCE_QUERIES_MAX
from eruca._store.filesystem import FileSystem
from eruca._store.messagestore import MessageStore
from eruca._store.tables.saving import TableSaver
from eruca._store.tables.tables import TableFile
from eruca._wire.bodies import JsonBody
from eruca._wire.bodies.shared import kept, kept_dict
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca._wire.once import RAW_ONCE_MARK, OnceMark, read_mark
from eruca._wire.properties import REAL_QID, REAL_TOPIC, get_property
from eruca.errors import MessageIllegal, StoreFull, TableUnsaved

log = logging.getLogger(__name__)

TABLE_NAME: Final = "erucaOnce.json"

_RAW_REAL_TOPIC: Final = REAL_TOPIC.encode()
_RAW_REAL_QID: Final = REAL_QID.encode()
_ALL: Final = 2**63 - 1
_SAVER_NAME: Final = "once"
# The log may grow by so much before the table is saved although nothing in it changed: a start reads what is behind.
_UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
# What a slave reads of the log before others have their turn: a few milliseconds of the loop's time.
_TURN_BYTES: Final = 4 * 1024 * 1024

# Topic, queue and partition.
_PlaceKey: TypeAlias = tuple[str, int, int]


class OnceQuery(JsonBody):
    """What is remembered of a query: its newest batch, and the highest sequence by topic and `queue:partition`.

    Islands are what is stored above it, as first and last sequence of each.
    """

    batch: int = kept(0)
    islands: dict[str, dict[str, list[tuple[int, int]]]] = kept_dict()
    places: dict[str, dict[str, int]] = kept_dict()


class OnceTable(JsonBody):
    """The table on the disk; queries in the order in which they were last heard of."""

    # How often a part of the log was cut off when the table was made.
    cuts: int = kept(0)
    position: int = kept(0)
    queries: dict[str, OnceQuery] = kept_dict()


class _Query:
    """The newest batch of a query, and the highest sequence by topic, queue and partition."""

    __slots__ = ("batch", "islands", "places")

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.places: dict[_PlaceKey, int] = {}
        # What is stored above the highest sequence before which all is stored.
        self.islands: dict[_PlaceKey, list[tuple[int, int]]] = {}

    def begin(self, batch: int) -> None:
        """A newer batch begins."""
        self.batch = batch
        self.places = {}
        self.islands = {}


class OnceFile(TableFile[OnceTable]):
    """The table on the disk."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        super().__init__(disk, path, OnceTable)
        # Has it ever been written?
        self.is_there = disk.exists(path) or disk.exists(path.with_name(path.name + ".bak"))

    def save(self, table: OnceTable) -> None:
        """Replace the table in one step."""
        super().save(table)
        self.is_there = True


class Once:
    """What was stored of each query."""

    def __init__(self, store: MessageStore, file: OnceFile, saver: TableSaver) -> None:
        self._store = store
        self._file = file
        self._saver = saver
        self._queries: dict[str, _Query] = {}
        self._count = 0
        # Messages that were here already.
        self.dropped = 0
        # Marks that were read from the log.
        self.found = 0
        self._changed = False
        # A table that waits until the disk has the log it is about.
        self._waiting: OnceTable | None = None
        self._saved_position = 0
        # On a slave: the log is read up to here; -1 on a master, which notes what it stores.
        self._read_to = -1
        self._cuts = store.lineage.cuts
        store.lineage.was_cut.listen(self._on_cut)
        # The table is saved with the others, once there is one.
        if self.is_ready:
            saver.add(_SAVER_NAME, file, self._take_table, self._note_saved)

    # -- what senders ask --------------------------------------------------------------------------------------------

    def find_stored(self, topic: str, queue_id: int, mark: OnceMark) -> int:
        """The highest sequence of a mark's batch and partition up to which a queue has all; -1 for none."""
        query = self._queries.get(mark.query)
        if query is None or mark.batch > query.batch:
            return -1
        if mark.batch < query.batch:
            return _ALL
        return query.places.get((topic, queue_id, mark.partition), -1)

    def find_islands(self, topic: str, queue_id: int, mark: OnceMark) -> Sequence[tuple[int, int]]:
        """What a queue has above that, as first and last sequence of each island."""
        query = self._queries.get(mark.query)
        if query is None or mark.batch != query.batch:
            return ()
        return query.islands.get((topic, queue_id, mark.partition), ())

    def has(self, topic: str, queue_id: int, mark: OnceMark) -> bool:
        """Is a message stored already?"""
        if mark.sequence <= self.find_stored(topic, queue_id, mark):
            return True
        islands = self.find_islands(topic, queue_id, mark)
        # They are sorted, and where rows of a queue are not neighbours there is one for each.
        before = bisect_right(islands, (mark.sequence, _ALL)) - 1
        return before >= 0 and islands[before][1] >= mark.sequence

    def check_room(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        """Raise StoreFull when one query alone has as many places as may be remembered."""
        query = self._queries.get(mark.query)
        if query is None or mark.batch > query.batch or len(query.places) < ONCE_PLACES_MAX:
            return
        if (topic, queue_id, mark.partition) not in query.places:
            raise StoreFull(
                f"query {mark.query} writes from too many partitions to too many queues: {ONCE_PLACES_MAX} pairs are"
                " remembered",
                hint="write from fewer partitions (coalesce), or with delivery=at-least-once",
            )

    def note(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        """A message was stored, and all of its batch and partition that were sent to the queue before it."""
        query = self._queries.pop(mark.query, None)
        if query is None:
            query = _Query(mark.batch)
        elif mark.batch > query.batch:
            self._count -= len(query.places)
            query.begin(mark.batch)
        # The one heard of last is at the end.
        self._queries[mark.query] = query
        if mark.batch < query.batch:
            return
        place = (topic, queue_id, mark.partition)
        before = query.places.get(place)
        if before is None:
            self._count += 1
        elif before >= mark.sequence:
            return
        query.places[place] = mark.sequence
        islands = query.islands.pop(place, None)
        if islands is not None and islands[-1][1] > mark.sequence:
            query.islands[place] = [island for island in islands if island[1] > mark.sequence]
        self._changed = True
        if self._count > ONCE_PLACES_MAX or len(self._queries) > ONCE_QUERIES_MAX:
            self._forget_oldest()

    def _note_island(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        """A message is stored; whether all those before it are is not known."""
        if self.has(topic, queue_id, mark):
            return
        self.note(topic, queue_id, mark._replace(sequence=-1))
        islands = self._queries[mark.query].islands.setdefault((topic, queue_id, mark.partition), [])
        place = bisect_right(islands, (mark.sequence, _ALL))
        if place and islands[place - 1][1] == mark.sequence - 1:
            islands[place - 1] = islands[place - 1][0], mark.sequence
        else:
            islands.insert(place, (mark.sequence, mark.sequence))

    def _forget_oldest(self) -> None:
        while (self._count > ONCE_PLACES_MAX or len(self._queries) > ONCE_QUERIES_MAX) and len(self._queries) > 1:
            name = next(iter(self._queries))
            self._count -= len(self._queries.pop(name).places)
            log.warning("what query %s has stored is forgotten: there are too many queries", name)

    # -- the table ---------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Is there a table? Before there is one, nothing with a mark may be stored."""
        return self._file.is_there

    async def get_ready(self) -> None:
        """Save a first, empty table. Raises StoreFull when that cannot be done."""
        if not self.is_ready:
            self._saver.add(_SAVER_NAME, self._file, self._take_table, self._note_saved)
            self._saver.mark(_SAVER_NAME)
            try:
                await self._saver.wait_until_saved(_SAVER_NAME)
            except TableUnsaved as error:
                raise StoreFull(f"the table of what was stored once cannot be written: {error}") from error

    def save_if_changed(self) -> None:
        """Have the table saved if the log has gone on since; called now and then.

        A table is taken now, and written by a later call, when the disk has the log it is about: otherwise a power loss
        could leave a table that knows messages which the log has lost.
        """
        if not self.is_ready:
            return
        if self._waiting is None:
            behind = self._end - self._saved_position
            if self._changed or behind > _UNREAD_BYTES_MAX:
                self._changed = False
                self._waiting = self.snapshot()
        elif self._store.flusher.flushed >= self._waiting.position and _SAVER_NAME not in self._saver.unsaved:
            self._saver.mark(_SAVER_NAME)

    @property
    def _end(self) -> int:
        """The position up to which the log is in the table of this moment."""
        return self._store.log.tail if self._read_to < 0 else self._read_to

    def finish(self) -> None:
        """The broker stops: the table that is saved then has everything, and the store is synced after it."""
        self._waiting = None

    def _take_table(self) -> OnceTable:
        """What is to be written now, and again when that fails: a newer table may be ahead of the log on the disk."""
        if self._waiting is None:
            self._waiting = self.snapshot()
        return self._waiting

    def _note_saved(self) -> None:
        if self._waiting is not None:
            self._saved_position = self._waiting.position
            self._waiting = None

    def snapshot(self) -> OnceTable:
        """The table of this moment."""
        queries: dict[str, OnceQuery] = {}
        for name, query in self._queries.items():
            table = queries[name] = OnceQuery(batch=query.batch)
            for (topic, queue_id, partition), sequence in query.places.items():
                table.places.setdefault(topic, {})[f"{queue_id}:{partition}"] = sequence
            for (topic, queue_id, partition), islands in query.islands.items():
                table.islands.setdefault(topic, {})[f"{queue_id}:{partition}"] = list(islands)
        position = self._end
        if not queries:
            position = min(position, self._store.flusher.flushed)
        return OnceTable(cuts=self._cuts, position=position, queries=queries)

    def restore(self, table: OnceTable) -> None:
        """Take what a table says."""
        for name, kept_query in table.queries.items():
            query = self._queries[name] = _Query(kept_query.batch)
            for topic, places in kept_query.places.items():
                query.places |= {_read_place(topic, place): sequence for place, sequence in places.items()}
            for topic, found in kept_query.islands.items():
                query.islands |= {_read_place(topic, place): list(islands) for place, islands in found.items()}
            self._count += len(query.places)
        self._saved_position = table.position

    # -- on a slave ---------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """The log is the master's from now on: what is in it is read, and not noted by whoever stores it."""
        if self._read_to < 0:
            self._read_to = self._store.log.readable_end
        # A crash after the first mark of the master, and no table: a start would not look for it.
        await self.get_ready()

    async def catch_up(self, end: int) -> None:
        """Read the marks of a slave's log up to a position that ends a record."""
        if self._read_to < 0:
            return
        cuts = self._cuts
        while self._read_to < end and cuts == self._cuts:
            self._read_to = self._read_turn(end)
            await asyncio.sleep(0)

    def _on_cut(self, _: int) -> None:
        """A part of the log is gone, and marks with it: all that is left is read again."""
        log.warning("a part of the log was cut off: all marks of messages to be stored once are read again")
        self._queries.clear()
        self._count = 0
        self._waiting = None
        self._cuts = self._store.lineage.cuts
        self._read_to = 0

    def _read_turn(self, end: int) -> int:
        """Read some megabytes of a slave's log; returns where the next turn goes on."""
        start = max(self._read_to, self._store.log.start)
        for behind in self._read_marks(start, end):
            if behind - start >= _TURN_BYTES:
                return behind
        return end

    def lead(self) -> None:
        """This broker stores messages itself from now on; it has caught up."""
        self._read_to = -1

    # -- the log ------------------------------------------------------------------------------------------------------

    def read_log(self, position: int) -> None:
        """Take the marks of the log from a position on."""
        for _ in self._read_marks(max(position, self._store.log.start), self._store.log.tail):
            pass

    def _read_marks(self, start: int, end: int) -> Iterator[int]:
        """Take the marks between two positions; yields, now and then, how far it is."""
        damage = self._store.damage.items
        whole_until = min([item.position for item in damage if item.end > start], default=_ALL)
        for facts in self._store.reader.iter_facts(start, end):
            for at, _, topic, queue_id, _, _, _, properties in facts:
                if RAW_ONCE_MARK in properties:
                    name = topic.decode("utf-8", "replace")
                    self.found += self._read_record(name, queue_id, properties, whole=at < whole_until)
            yield facts[-1][0] + facts[-1][1]

    def _read_record(self, topic: str, queue_id: int, properties: bytes, *, whole: bool) -> bool:
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return False  # sent by a consumer, as the copy of a message that was stored once
        try:
            mark = read_mark(properties)
        except MessageIllegal:
            return False
        if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            real_topic = get_property(properties, _RAW_REAL_TOPIC)
            real_queue = read_digits(get_property(properties, _RAW_REAL_QID))
            if real_topic is None or real_queue is None:
                return False
            topic, queue_id = real_topic.decode("utf-8", "replace"), real_queue
        if mark is None:
            return False
        if whole:
            self.note(topic, queue_id, mark)
        else:
            self._note_island(topic, queue_id, mark)
        return True


def _read_place(topic: str, place: str) -> _PlaceKey:
    queue_id, _, partition = place.partition(":")
    return topic, int(queue_id), int(partition)


def load_once(store: MessageStore, saver: TableSaver) -> Once:
    """Read the table of a store, and the marks in the log behind it; blocks."""
    file = OnceFile(store.disk, store.paths.once)
    once = Once(store, file, saver)
    if not once.is_ready:
        return once
    table = file.load()
    if table.position <= store.log.tail and table.cuts == store.lineage.cuts:
        once.restore(table)
        once.read_log(table.position)
    else:
        log.warning("%s is about another log than there is: all of it is read again", TABLE_NAME)
        once.read_log(0)
    log.info("%d marks of messages to be stored once were read from the log", once.found)
    return once
