"""What was given to a store and what it has promised, kept beside it so that a crash can be judged.

The ledger is the model: after any crash the log may hold only records that were appended, where they were appended,
and must hold all that were acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from eruca._ground.config import StoreOptions, parse_delay_levels
from eruca._store.log.scan import Damage, iter_records, scan_log
from eruca._store.messagestore import MessageStore
from eruca._store.queues.dispatch import has_queue_entry
from eruca._store.reading.slices import ReadBounds, ReadStatus
from eruca._wire.javahash import java_hash
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.record import Record, decode_record, encode_record

QueueKey = tuple[str, int]

# The record format checks its sizes, its position and the CRC of its body. The rest of the head, the topic's letters
# and the properties are only as good as the disk: a sector torn in its middle can change them unseen.
_UNPROTECTED_HEAD = range(8, 84 + 24)
_FAR_FUTURE_MS = 2**53
_DELAYS_MS = parse_delay_levels(StoreOptions().delay_levels)


class Broken(AssertionError):
    """The store broke a promise."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as it was appended."""

    position: int
    data: bytes
    message: Record

    @property
    def end(self) -> int:
        """Position after the record."""
        return self.position + len(self.data)

    @property
    def queue(self) -> QueueKey | None:
        """The queue that shows it, if one does."""
        return (self.message.topic, self.message.queue_id) if has_queue_entry(self.message.sys_flag) else None

    @property
    def keys(self) -> list[str]:
        """What the index finds it by."""
        unique = self.message.get_property("UNIQ_KEY")
        keys = self.message.get_property("KEYS") or ""
        return [key for key in [unique, *keys.split(" ")] if key]


@dataclass(slots=True)
class Ledger:
    """Everything appended to one store, and up to where it is acknowledged."""

    records: dict[int, Stored] = field(default_factory=dict)
    # Everything before this position was acknowledged as being on the disk.
    synced_end: int = 0
    # A killed process leaves what it wrote to the operating system: it is there unless the power goes as well.
    written_end: int = 0
    # Retention may have deleted everything before this.
    start_max: int = 0
    # For each queue, the offset after the last acknowledged message: never given to another message.
    offsets: dict[QueueKey, int] = field(default_factory=dict)
    # Where damage was found already: it stays in the log, so later walks find it again.
    known_damage: list[Damage] = field(default_factory=list)
    # From here on a head was changed unseen by a torn sector: what queues and index make of such a record, and of those
    # that it pretends to be, proves nothing.
    altered_from: int | None = None

    def add(self, message: Record) -> None:
        """Remember a message whose append returned."""
        stored = Stored(message.position, encode_record(message), message)
        self.records[stored.position] = stored

    def acknowledge(self, position: int) -> None:
        """Note the store's claim that everything before a position is on the disk."""
        if position <= self.synced_end:
            return
        for stored in self.records.values():
            if self.synced_end < stored.end <= position and stored.queue is not None and self.is_clear(stored):
                known = self.offsets.get(stored.queue, 0)
                self.offsets[stored.queue] = max(known, stored.message.queue_offset + 1)
        self.synced_end = position

    def copy(self) -> Ledger:
        """The same promises, to be held against another disk."""
        return replace(
            self, records=dict(self.records), offsets=dict(self.offsets), known_damage=list(self.known_damage)
        )

    def is_clear(self, stored: Stored) -> bool:
        """Is a record before any that was changed without detection?"""
        return self.altered_from is None or stored.end <= self.altered_from

    @property
    def promised_end(self) -> int:
        """Everything before this position must be there."""
        return max(self.synced_end, self.written_end)

    # -- judging -----------------------------------------------------------------------------------------------------

    def check(self, store: MessageStore, *, torn_sectors: bool = False) -> None:
        """Compare a store that has just been opened with the ledger, then continue from what it has."""
        found = self._check_log(store, torn_sectors)
        self._check_damage(store)
        self._check_queues(store, found)
        if self.altered_from is None:
            self._check_keys(store, found)
        self.records = found
        self.written_end = 0
        self.known_damage = list(store.damage.items)
        self.acknowledge(store.flusher.flushed)

    def _check_log(self, store: MessageStore, torn_sectors: bool) -> dict[int, Stored]:
        log = store.log
        found: dict[int, Stored] = {}

        scan = scan_log(log.chain, log.start, stop=log.tail)
        for _, _, position in iter_records(log.chain, log.start, scan.end, scan.damage):
            record = store.reader.view_record(position)
            expect(record is not None, f"the record at {position} cannot be viewed")
            assert record is not None
            data = bytes(record)
            known = self.records.get(position)
            if known is None:
                raise Broken(f"a record at {position} appeared that nobody appended")
            if known.data != data:
                allowed = torn_sectors and position >= self.promised_end and _differs_unseen(known.data, data)
                expect(allowed, f"the record at {position} changed: {_describe_difference(known.data, data)}")
                if self.altered_from is None:
                    self.altered_from = self.promised_end
            found[position] = Stored(position, data, decode_record(data))

        hole = Damage(scan.end, log.tail - scan.end, "")
        is_whole = scan.end == log.tail or any(
            item.end >= hole.end for item in store.damage.items if _is_in(hole, [item])
        )
        expect(is_whole, f"the walk ends at {scan.end}, the log at {log.tail}")
        for item in scan.damage:
            reported = _is_in(item, store.damage.items)
            expect(reported, f"damage at {item.position} ({item.reason}) was not reported")
        expect(log.start <= max(self.start_max, 0), f"the log starts at {log.start}, deletion went to {self.start_max}")
        for stored in self.records.values():
            if stored.end <= self.promised_end and stored.position >= self.start_max:
                expect(stored.position in found, f"the acknowledged record at {stored.position} is gone")
        expect(log.tail >= self.promised_end, f"the log ends at {log.tail}, acknowledged was {self.promised_end}")
        return found

    def _check_damage(self, store: MessageStore) -> None:
        assert store.recovered is not None
        for item in store.recovered.damage:
            expect(
                _is_in(item, self.known_damage) or item.position >= self.promised_end,
                f"damage at {item.position} in what was acknowledged up to {self.promised_end}: {item.reason}",
            )

    def _check_queues(self, store: MessageStore, found: dict[int, Stored]) -> None:
        wanted: dict[QueueKey, dict[int, Stored]] = {}
        for stored in found.values():
            if stored.queue is not None and self.is_clear(stored):
                wanted.setdefault(stored.queue, {})[stored.message.queue_offset] = stored
        for key in sorted({*wanted, *self.offsets, *((queue.topic, queue.queue_id) for queue in store.queues)}):
            self._check_queue(store, key, wanted.get(key, {}), found)

    def _check_queue(
        self, store: MessageStore, key: QueueKey, wanted: dict[int, Stored], found: dict[int, Stored]
    ) -> None:
        name = f"{key[0]} queue {key[1]}"
        queue = store.queues.get(*key)
        expect(queue is not None or not wanted, f"{name} is gone with {len(wanted)} messages")
        max_offset = 0 if queue is None else queue.max_offset
        promised = self.offsets.get(key, 0)
        expect(max_offset >= promised, f"{name} goes on at {max_offset}, but {promised - 1} was acknowledged")
        if queue is None:
            return
        expect(queue.next_offset == max_offset, f"{name}: next offset {queue.next_offset}, max {max_offset}")
        seen = read_whole_queue(store, key)
        for offset, stored in wanted.items():
            if stored.position < self.start_max and offset not in seen:
                continue  # a segment that retention was deleting when the power went
            expect(offset in seen, f"{name}: message {offset} (record {stored.position}) cannot be read")
            expect(seen[offset] == stored.data, f"{name}: message {offset} is not record {stored.position}")
        if self.altered_from is not None:
            return
        for offset in seen:
            expect(offset in wanted, f"{name}: message {offset} is in the queue and not in the log")
        if not store.damage.items:
            first = queue.min_offset
            missing = [offset for offset in range(first, max_offset) if offset not in seen]
            expect(not missing, f"{name}: offsets {missing} show nothing, and no damage was reported")
            if wanted:
                expect(max_offset == max(wanted) + 1, f"{name} ends at {max_offset}, its last message is {max(wanted)}")
        for offset, stored in wanted.items():
            if offset < queue.min_offset:
                continue
            entry = queue.entry(offset)
            right = (stored.position, len(stored.data), _find_tags_code(stored.message))
            expect(entry == right, f"{name}: entry {offset} is {entry} instead of {right}")

    def _check_keys(self, store: MessageStore, found: dict[int, Stored]) -> None:
        if store.index is None:
            return
        by_key: dict[tuple[str, str], set[int]] = {}
        for stored in found.values():
            for key in stored.keys:
                by_key.setdefault((stored.message.topic, key), set()).add(stored.position)
        for (topic, key), positions in by_key.items():
            hits = [position for position, _ in store.reader.find_by_key(topic, key, 0, _FAR_FUTURE_MS, 10_000)]
            expect(len(hits) == len(set(hits)), f"{topic} key {key}: found twice, {hits}")
            missing = {position for position in positions - set(hits) if position >= self.start_max}
            expect(not missing, f"{topic} key {key}: records {sorted(missing)} are not found, only {hits}")
            expect(set(hits) <= positions, f"{topic} key {key}: {sorted(set(hits) - positions)} are not such records")


def expect(condition: bool, complaint: str) -> None:
    """Raise Broken with the complaint unless the condition holds."""
    if not condition:
        raise Broken(complaint)


def read_whole_queue(store: MessageStore, key: QueueKey, bounds: ReadBounds | None = None) -> dict[int, bytes]:
    """Read a queue as a consumer does, from the first offset to the last; every message once, at its own offset."""
    queue = store.queues.get(*key)
    if queue is None:
        return {}
    seen: dict[int, bytes] = {}
    offset = queue.min_offset
    while True:
        result = store.reader.read(*key, offset, bounds or ReadBounds(count_max=7, bytes_max=4000))
        if result.status in (ReadStatus.OFFSET_OVERFLOW_ONE, ReadStatus.NO_MESSAGE_IN_QUEUE):
            return seen
        expect(
            result.next_offset > offset, f"{key}: a read at {offset} ({result.status}) leads to {result.next_offset}"
        )
        for piece in result.slices:
            data = bytes(piece)
            message = decode_record(data)
            expect((message.topic, message.queue_id) == key, f"{key} shows a message of {message.topic}")
            expect(message.queue_offset not in seen, f"{key}: message {message.queue_offset} was read twice")
            expect(
                offset <= message.queue_offset < result.next_offset,
                f"{key}: a read from {offset} to {result.next_offset} shows message {message.queue_offset}",
            )
            seen[message.queue_offset] = data
        offset = result.next_offset


def _is_in(damage: Damage, known: list[Damage]) -> bool:
    return any(other.position <= damage.position < other.end for other in known)


def _find_tags_code(message: Record) -> int:
    """The tags code an entry must have, found in the plainest way."""
    level = int(message.get_property("DELAY") or 0)
    if message.topic == SCHEDULE_TOPIC and level > 0:
        return message.store_timestamp + _DELAYS_MS[min(level, len(_DELAYS_MS)) - 1]
    return java_hash(message.get_property("TAGS") or "")


def _differs_unseen(old: bytes, new: bytes) -> bool:
    """Do two records of the same size differ only where the format has no check?"""
    if len(old) != len(new):
        return False
    message = decode_record(old)
    tail = len(message.topic.encode()) + 2 + len(message.properties)
    return all(
        at in _UNPROTECTED_HEAD or at >= len(old) - tail
        for at, (left, right) in enumerate(zip(old, new, strict=True))
        if left != right
    )


def _describe_difference(old: bytes, new: bytes) -> str:
    if len(old) != len(new):
        return f"{len(old)} bytes became {len(new)}"
    places = [at for at, (left, right) in enumerate(zip(old, new, strict=True)) if left != right]
    return f"{len(places)} bytes from {places[0]} to {places[-1]} of {len(old)}"
