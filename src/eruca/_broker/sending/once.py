"""Storing a message once although it is sent again: the broker's half of idempotent Spark sinks and producers.

Each message of such a sink has a mark that identifies the row and the query (`wire.once`). A sender sends the rows of
a partition to a queue in the order of their sequence, and the next ones only after the previous ones were acknowledged.
So the highest stored sequence is enough: any message not above it is already stored, so it is dropped and acknowledged.
A batch starts when the previous one is complete, so messages of a batch older than the newest in their topic are
dropped too, and nothing about older batches has to be remembered. Each topic has its own newest batch: the readers of a
topic know its marks, and may be allowed to publish to another.

For a producer, the query is the producer, and a partition is one of its lanes: a lane carries one request at a time
(`client.produce.once`). Producers come and go more often than queries, so they have a shelf of their own: however many
there are, no query is forgotten for them.

A power loss may remove records from the middle of what was not synced yet, and leave some after them. A mark after
such a gap does not prove that those before it are stored: it is remembered separately, as an island, until they have
been sent again.

The marks are in the log, and the log is authoritative. The table is saved from time to time with the log position it
covers, and only after the log is synced up to there; a start reads the marks after that position. There must be a
table before the first mark is stored: without a table, a start reads nothing.

On a slave the marks arrive with its master's log, and are read from it in small steps. If a part of its log is cut off
because its master does not have it, the marks of the whole remaining log are read again.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from eruca._broker.options import LiveOptions
from eruca._broker.sending.onceshelf import PlaceKey, Progress, Shelf
from eruca._ground.digits import read_digits
from eruca._net.guards import Reporter
from eruca._net.meters import count_refused, show
from eruca._store.filesystem import FileSystem
from eruca._store.messagestore import MessageStore
from eruca._store.tables.saving import TableSaver
from eruca._store.tables.tables import TableFile
from eruca._wire.bodies import JsonBody
from eruca._wire.bodies.shared import kept, kept_dict
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca._wire.once import PRODUCER_PREFIX, RAW_ONCE_MARK, OnceMark, read_mark
from eruca._wire.properties import REAL_QID, REAL_TOPIC, get_property
from eruca.errors import MessageIllegal, StoreFull, TableUnsaved

log = logging.getLogger(__name__)

TABLE_NAME: Final = "erucaOnce.json"

_RAW_REAL_TOPIC: Final = REAL_TOPIC.encode()
_RAW_REAL_QID: Final = REAL_QID.encode()
_ALL: Final = 2**63 - 1
_SAVER_NAME: Final = "once"
# The log may grow by this much before the table is saved although nothing in it changed: a start reads the rest.
_UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
# What a slave reads of the log per turn: a few milliseconds of event loop time.
_TURN_BYTES: Final = 4 * 1024 * 1024


class OnceQuery(JsonBody):
    """What is remembered of a query: its newest batch, and the highest sequence, by topic and `queue:partition`.

    Islands are sequences stored above it, each with its first and last.
    """

    #: The newest of all batches; in older tables that of every topic.
    batch: int = kept(0)
    batches: dict[str, int] = kept_dict()
    islands: dict[str, dict[str, list[tuple[int, int]]]] = kept_dict()
    places: dict[str, dict[str, int]] = kept_dict()


class OnceTable(JsonBody):
    """The table on disk; queries in order of last use."""

    # How often a part of the log had been cut off when the table was made.
    cuts: int = kept(0)
    position: int = kept(0)
    queries: dict[str, OnceQuery] = kept_dict()


class OnceFile(TableFile[OnceTable]):
    """The table on disk."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        super().__init__(disk, path, OnceTable)
        # Whether it was ever written.
        self.is_there = disk.exists(path) or disk.exists(path.with_name(path.name + ".bak"))

    def save(self, table: OnceTable) -> None:
        """Replace the table atomically."""
        super().save(table)
        self.is_there = True


class Once:
    """What was stored of each query."""

    def __init__(self, options: LiveOptions, store: MessageStore, file: OnceFile, saver: TableSaver) -> None:
        self._options = options
        self._store = store
        self._file = file
        self._saver = saver
        self._queries = Shelf()
        self._producers = Shelf()
        self._reporter = Reporter(log)
        show("once_queries", "Queries of idempotent sinks, and idempotent producers.", self, lambda it: it._count()[0])
        show("once_places", "Numbers that are remembered of these.", self, lambda it: it._count()[1])
        # Messages that were already stored.
        self.dropped = 0
        # Marks that were read from the log.
        self.found = 0
        self._changed = False
        # A table that waits until the log it covers is synced.
        self._waiting: OnceTable | None = None
        self._saved_position = 0
        # On a slave: the log is read up to here; -1 on a master, which notes marks as it stores them.
        self._read_to = -1
        self._cuts = store.lineage.cuts
        store.lineage.was_cut.listen(self._on_cut)
        # The table is saved with the others, once there is one.
        if self.is_ready:
            saver.add(_SAVER_NAME, file, self._take_table, self._note_saved)

    def _find_shelf(self, name: str) -> Shelf:
        return self._producers if name.startswith(PRODUCER_PREFIX) else self._queries

    def _count(self) -> tuple[int, int]:
        shelves = (self._queries, self._producers)
        return sum([len(shelf.queries) for shelf in shelves]), sum([shelf.count for shelf in shelves])

    def _find(self, topic: str, mark: OnceMark) -> Progress | None:
        query = self._find_shelf(mark.query).queries.get(mark.query)
        return None if query is None else query.topics.get(topic)

    # -- for senders -------------------------------------------------------------------------------------------------

    def find_stored(self, topic: str, queue_id: int, mark: OnceMark) -> int:
        """Return the sequence up to which a queue has all messages of a mark's batch and partition; -1 for none."""
        progress = self._find(topic, mark)
        if progress is None or mark.batch > progress.batch:
            return -1
        if mark.batch < progress.batch:
            return _ALL
        return progress.places.get((queue_id, mark.partition), -1)

    def find_islands(self, topic: str, queue_id: int, mark: OnceMark) -> Sequence[tuple[int, int]]:
        """Return what a queue has above that, as first and last sequence of each island."""
        progress = self._find(topic, mark)
        if progress is None or mark.batch != progress.batch:
            return ()
        return progress.islands.get((queue_id, mark.partition), ())

    def has(self, topic: str, queue_id: int, mark: OnceMark) -> bool:
        """Whether a message is already stored."""
        if mark.sequence <= self.find_stored(topic, queue_id, mark):
            return True
        islands = self.find_islands(topic, queue_id, mark)
        # They are sorted, and if the rows of a queue are not adjacent there is one for each row.
        before = bisect_right(islands, (mark.sequence, _ALL)) - 1
        return before >= 0 and islands[before][1] >= mark.sequence

    def check_room(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        """Raise StoreFull if one query alone would exceed the number of places that can be remembered."""
        query = self._find_shelf(mark.query).queries.get(mark.query)
        most = self._options.now.once_places_max
        if query is None or query.count < most:
            return
        progress = query.topics.get(topic)
        if progress is None or (mark.batch <= progress.batch and (queue_id, mark.partition) not in progress.places):
            raise StoreFull(
                f"query {mark.query} writes from too many partitions to too many queues: at most"
                f" {most} pairs are remembered (maxOncePlaces)",
                hint="write from fewer partitions (coalesce), or with delivery=at-least-once",
            )

    def note(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        """Note a stored message, and that all earlier ones of its batch and partition in the queue are stored."""
        shelf = self._find_shelf(mark.query)
        query = shelf.use(mark.query, topic)
        shelf.count -= query.count
        progress = query.get_progress(topic, mark.batch)
        shelf.count += query.count
        if mark.batch < progress.batch:
            return
        place = (queue_id, mark.partition)
        before = progress.places.get(place)
        if before is None:
            shelf.count += 1
            query.count += 1
        elif before >= mark.sequence:
            return
        progress.places[place] = mark.sequence
        islands = progress.islands.pop(place, None)
        if islands is not None and islands[-1][1] > mark.sequence:
            progress.islands[place] = [island for island in islands if island[1] > mark.sequence]
        self._changed = True
        options = self._options.now
        if shelf.count > options.once_places_max or len(shelf.queries) > options.once_queries_max:
            self._make_room(shelf, topic)

    def _make_room(self, shelf: Shelf, topic: str) -> None:
        """Forget those idle for longest until the rest is within the limits."""
        options = self._options.now
        while len(shelf.queries) > 1:
            if shelf.count > options.once_places_max:
                key, most = "maxOncePlaces", options.once_places_max
            elif len(shelf.queries) > options.once_queries_max:
                key, most = "maxOnceQueries", options.once_queries_max
            else:
                return
            name = shelf.forget_oldest(topic)
            count_refused(key)
            # Producers are never announced as gone, so forgetting one is nothing to worry about.
            if not name.startswith(PRODUCER_PREFIX):
                text = f"dropping the record of what {name} has stored: there are too many ({key}={most})"
                self._reporter.report(topic, text)

    def _note_island(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        """Note a stored message when it is not known whether all earlier ones are stored."""
        if self.has(topic, queue_id, mark):
            return
        self.note(topic, queue_id, mark._replace(sequence=-1))
        progress = self._find(topic, mark)
        assert progress is not None
        islands = progress.islands.setdefault((queue_id, mark.partition), [])
        place = bisect_right(islands, (mark.sequence, _ALL))
        if place and islands[place - 1][1] == mark.sequence - 1:
            islands[place - 1] = islands[place - 1][0], mark.sequence
        else:
            islands.insert(place, (mark.sequence, mark.sequence))

    # -- the table ---------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether there is a table. Before there is one, no message with a mark may be stored."""
        return self._file.is_there

    async def get_ready(self) -> None:
        """Save a first, empty table. Raises StoreFull if that fails."""
        if not self.is_ready:
            self._saver.add(_SAVER_NAME, self._file, self._take_table, self._note_saved)
            self._saver.mark(_SAVER_NAME)
            try:
                await self._saver.wait_until_saved(_SAVER_NAME)
            except TableUnsaved as error:
                raise StoreFull(f"the table of marks cannot be written: {error}") from error

    def save_if_changed(self) -> None:
        """Save the table if the log has grown since; called periodically.

        The table is captured now, and written by a later call, once the log it covers is synced: otherwise a power loss
        could leave a table with messages that the log has lost.
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
        """The log position that the current table covers."""
        return self._store.log.tail if self._read_to < 0 else self._read_to

    def finish(self) -> None:
        """The broker stops: the table saved after this is complete, and the store is synced after it."""
        self._waiting = None

    def _take_table(self) -> OnceTable:
        """Return the table to write, the same one after a failure: a newer one may be ahead of the synced log."""
        if self._waiting is None:
            self._waiting = self.snapshot()
        return self._waiting

    def _note_saved(self) -> None:
        if self._waiting is not None:
            self._saved_position = self._waiting.position
            self._waiting = None

    def snapshot(self) -> OnceTable:
        """Return the current table."""
        queries: dict[str, OnceQuery] = {}
        for name, query in (*self._queries.queries.items(), *self._producers.queries.items()):
            table = queries[name] = OnceQuery(batch=max([one.batch for one in query.topics.values()]))
            for topic, one in query.topics.items():
                table.batches[topic] = one.batch
                table.places[topic] = {_write_place(place): sequence for place, sequence in one.places.items()}
                if one.islands:
                    table.islands[topic] = {_write_place(place): list(found) for place, found in one.islands.items()}
        position = self._end
        if not queries:
            position = min(position, self._store.flusher.flushed)
        return OnceTable(cuts=self._cuts, position=position, queries=queries)

    def restore(self, table: OnceTable) -> None:
        """Restore the state from a table."""
        for name, kept_query in table.queries.items():
            shelf = self._find_shelf(name)
            for topic, places in kept_query.places.items():
                query = shelf.use(name, topic)
                progress = query.get_progress(topic, kept_query.batches.get(topic, kept_query.batch))
                progress.places = {_read_place(place): sequence for place, sequence in places.items()}
                found = kept_query.islands.get(topic, {})
                progress.islands = {_read_place(place): list(islands) for place, islands in found.items()}
                query.count += len(places)
                shelf.count += len(places)
        self._saved_position = table.position

    # -- on a slave ---------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """The log is the master's from now on: marks are read from the log instead of noted when stored."""
        if self._read_to < 0:
            self._read_to = self._store.log.readable_end
        # After the master's first mark and a crash without a table, a start would not look for it.
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
        """A part of the log is gone, and marks with it: read the whole remaining log again."""
        log.warning("a part of the log was cut off: reading all marks again")
        self._queries, self._producers = Shelf(), Shelf()
        self._waiting = None
        self._cuts = self._store.lineage.cuts
        self._read_to = 0

    def _read_turn(self, end: int) -> int:
        """Read some megabytes of a slave's log; return where the next turn continues."""
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
        """Read the marks of the log from a position on."""
        for _ in self._read_marks(max(position, self._store.log.start), self._store.log.tail):
            pass

    def _read_marks(self, start: int, end: int) -> Iterator[int]:
        """Read the marks between two positions; yields the progress from time to time."""
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
            return False  # a consumer sent it, as the copy of a message with a mark
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


def _write_place(place: PlaceKey) -> str:
    return f"{place[0]}:{place[1]}"


def _read_place(text: str) -> PlaceKey:
    queue_id, _, partition = text.partition(":")
    return int(queue_id), int(partition)


def load_once(options: LiveOptions, store: MessageStore, saver: TableSaver) -> Once:
    """Load the table of a store, and read the marks in the log after it; blocks."""
    file = OnceFile(store.disk, store.paths.once)
    once = Once(options, store, file, saver)
    if not once.is_ready:
        return once
    table = file.load()
    if table.position <= store.log.tail and table.cuts == store.lineage.cuts:
        once.restore(table)
        once.read_log(table.position)
    else:
        log.warning("%s does not match the log: reading the whole log again", TABLE_NAME)
        once.read_log(0)
    log.info("read %d marks from the log", once.found)
    return once
