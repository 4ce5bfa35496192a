"""Retention: which segments go at which hour and at which level of a filling disk, and what goes with them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.config import StoreOptions
from eruca._store.filesystem import replace_file
from eruca._store.log.archived import ArchiveMark
from eruca._store.messagestore import MessageStore
from eruca._store.retention import Retention, plan_retention
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import Fault, SimulatedDisk
from eruca.errors import ConfigError, StoreFull, StoreIOError
from tests.retaining import retain
from tests.unit.store.samples import (
    ROOT,
    SEGMENT_BYTES,
    get_queue,
    make_message,
    open_small,
    read_bodies,
    sized_message,
)

HOUR_MS = 3_600_000
OPTIONS = StoreOptions()
# 2023-11-15 00:00:00 UTC
MIDNIGHT = 1_700_006_400_000


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hour of deletion is a local one, so the zone must be known."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def plan(times: list[int], now: int, ratio: float = 0.1, hour: int = 4, asked: bool = False, **changes: Any) -> Any:
    """A plan for options that differ from the defaults as given."""
    return plan_retention(times, now, ratio, StoreOptions(**changes), local_hour=hour, asked=asked)


# --- deciding -------------------------------------------------------------------------------------------------------


def test_expired_segments_go_at_the_hour() -> None:
    now = 100 * HOUR_MS
    times = [1 * HOUR_MS, 28 * HOUR_MS, 28 * HOUR_MS + 1, 2 * HOUR_MS]
    assert plan(times, now).delete_count == 2  # 72 hours old or more, and it stops at the first that stays
    assert plan(times, now, hour=5).delete_count == 0
    assert plan(times, now, hour=5, asked=True).delete_count == 2
    assert plan(times, now, hour=16, delete_hours="04;16").delete_count == 2
    assert plan(times, now, hour=3, delete_hours=" 3 ; 4").delete_count == 2
    assert plan(times, now, retention_hours=98).delete_count == 1
    assert plan([], now).delete_count == 0


@pytest.mark.parametrize(
    ("ratio", "expired", "fresh", "refuse"),
    [
        (0.75, 0, 0, False),
        (0.7501, 2, 0, False),
        (0.85, 2, 0, False),
        (0.8501, 4, 4, False),
        (0.90, 4, 4, False),
        (0.9001, 4, 4, True),
        (1.0, 4, 4, True),
    ],
)
def test_the_three_levels_of_a_filling_disk(ratio: float, expired: int, fresh: int, refuse: bool) -> None:
    now = 100 * HOUR_MS
    half_expired = [HOUR_MS, HOUR_MS, now, now]
    assert plan(half_expired, now, ratio, hour=5).delete_count == expired
    assert plan([now] * 4, now, ratio, hour=5).delete_count == fresh
    assert plan([now], now, ratio, hour=5).refuse is refuse


def test_without_force_a_full_disk_deletes_only_what_is_expired() -> None:
    now = 100 * HOUR_MS
    assert plan([HOUR_MS, now], now, 0.99, hour=5, clean_forcibly=False).delete_count == 1
    assert plan([now], now, 0.99, hour=5, clean_forcibly=False).refuse


@given(
    st.lists(st.integers(0, 200 * HOUR_MS), max_size=40),
    st.integers(0, 200 * HOUR_MS),
    st.floats(0, 1),
    st.integers(0, 23),
    st.booleans(),
)
def test_a_plan_is_bounded_and_takes_the_oldest(
    times: list[int], now: int, ratio: float, hour: int, asked: bool
) -> None:
    made = plan(times, now, ratio, hour=hour, asked=asked)
    assert 0 <= made.delete_count <= min(10, len(times))
    assert bool(made.reason) or made.delete_count == 0
    if ratio <= 0.85:
        assert all(at <= now - 72 * HOUR_MS for at in times[: made.delete_count])
    if ratio > 0.85:
        assert made.delete_count == min(10, len(times))


def test_what_is_not_archived_stays_however_full_the_disk_is() -> None:
    now, old = 100 * HOUR_MS, [HOUR_MS] * 4

    def count(archived: int | None, ratio: float) -> tuple[int, bool]:
        made = plan_retention(old, now, ratio, OPTIONS, local_hour=4, archived=archived)
        return made.delete_count, made.refuse

    assert [count(archived, 0.1)[0] for archived in (None, 0, 1, 4)] == [4, 0, 1, 4]
    assert count(0, 0.86) == (0, False)
    assert count(2, 0.99) == (2, True)


# --- acting ---------------------------------------------------------------------------------------------------------


class World:
    """A store whose clock and disk usage a test sets."""

    def __init__(self, start_ms: int = MIDNIGHT, **changes: Any) -> None:
        self.clock = VirtualClock(start_ms)
        self.disk = SimulatedDisk(clock=self.clock)
        self.disk.make_directory(ROOT)
        self.disk.usage = 0.1
        self.store: MessageStore = open_small(self.disk, self.clock, **changes)
        self.retention = Retention(self.store)

    def fill(self, segments: int) -> None:
        """Write one large message to each of `count` segments, an hour apart, and flush them."""
        for number in range(segments):
            message = sized_message(3000, queue_id=number % 2)
            message.properties = b"KEYS\x01k%d" % len(self.store.log.chain.segments)
            message.body = message.body[: -len(message.properties)]
            self.store.append(message)
            self.store.flusher.sync_log()
            self.clock.advance(HOUR_MS)
        self.store.flusher.sync_derived()

    def segments(self) -> list[str]:
        """Names of the segments on the disk."""
        return self.disk.list(ROOT / "commitlog")


def test_only_what_is_old_enough_goes_and_only_at_four() -> None:
    world = World()
    world.fill(6)  # from 0 to 5 o'clock
    world.clock.advance(72 * HOUR_MS - 2 * HOUR_MS)  # 4 o'clock, three days later
    assert retain(world.retention).reason == "hour of day"
    assert len(world.segments()) == 2  # of 4 and 5 o'clock
    world.clock.advance(HOUR_MS)
    assert retain(world.retention).delete_count == 0
    world.clock.advance(23 * HOUR_MS)
    retain(world.retention)
    assert len(world.segments()) == 1
    assert world.retention.deleted_segments == 5


def test_the_hour_is_the_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XST-8")  # eight hours ahead of UTC
    time.tzset()
    world = World(MIDNIGHT - 4 * HOUR_MS)  # 20 o'clock in UTC, 4 o'clock here
    world.fill(3)
    world.clock.advance(24 * 30 * HOUR_MS - 3 * HOUR_MS)
    assert retain(world.retention).delete_count == 2
    world.clock.advance(8 * HOUR_MS)  # 4 o'clock in UTC
    world.fill(2)
    world.clock.advance(24 * 30 * HOUR_MS - 2 * HOUR_MS)
    assert retain(world.retention).delete_count == 0


def test_the_last_segment_stays_however_old_and_full_all_is() -> None:
    world = World()
    world.fill(3)
    world.clock.advance(1000 * HOUR_MS)
    world.disk.usage = 0.99
    retain(world.retention)
    retain(world.retention)
    assert world.segments() == [f"{2 * SEGMENT_BYTES:020d}"]


def test_the_last_segment_stays_also_when_the_log_ends_with_it() -> None:
    """A replica's copy may end at the very end of a segment; all of it is flushed then."""
    world = World()
    world.store.log.copy_in(memoryview(bytes(SEGMENT_BYTES)))
    world.store.flusher.sync_log()
    world.disk.usage = 0.99
    assert retain(world.retention).delete_count == 0
    assert world.store.log.start == 0
    assert world.segments() == [f"{0:020d}"]


def test_a_segment_that_is_not_flushed_stays() -> None:
    world = World()
    world.fill(2)
    for _ in range(3):
        world.store.append(sized_message(3000))
    world.disk.usage = 0.99
    assert retain(world.retention).delete_count == 1  # the second segment got its end-of-segment record only now
    world.store.flusher.sync_log()
    assert retain(world.retention).delete_count == 3


def test_a_pass_takes_ten_at_most() -> None:
    world = World()
    world.fill(25)
    world.disk.usage = 0.99
    assert [retain(world.retention).delete_count for _ in range(4)] == [10, 10, 4, 0]


def test_appends_are_refused_and_taken_again_by_themselves() -> None:
    world = World()
    world.fill(1)
    world.disk.usage = 0.91
    assert retain(world.retention).refuse
    for _ in range(2):
        with pytest.raises(StoreFull, match="more than 90 percent full"):
            world.store.append(make_message())
        with pytest.raises(StoreFull, match="more than 90 percent full"):
            world.store.append_batch([make_message()])
        retain(world.retention)
    assert len(read_bodies(world.store)) == 1  # reading still works
    world.disk.usage = 0.9
    retain(world.retention)
    world.store.append(make_message(body=b"again"))
    assert read_bodies(world.store)[-1] == b"again"


def test_only_archived_segments_go_and_a_full_disk_refuses_instead() -> None:
    world = World(delete_only_archived=True)
    world.fill(5)
    world.disk.usage = 0.91
    assert retain(world.retention).delete_count == 0
    with pytest.raises(StoreFull, match="deleteOnlyArchived keeps 4 segments that are not archived"):
        world.store.append(make_message())
    # A job with access to the directory writes the mark there, one with access to the broker sets it. The higher wins.
    end = world.store.log.chain.segments[1].end
    ArchiveMark(world.disk, ROOT / "config" / "archived.json").raise_to(end + 1)
    assert retain(world.retention).delete_count == 2
    world.store.change_options(replace(world.store.options, archived_position=end + SEGMENT_BYTES))
    assert retain(world.retention).delete_count == 1
    assert retain(world.retention).delete_count == 0
    world.store.change_options(replace(world.store.options, delete_only_archived=False))
    assert retain(world.retention).delete_count == 1


def test_the_archived_position_lasts_and_only_grows_up_to_the_end() -> None:
    world = World(delete_only_archived=True)
    world.fill(3)
    tail = world.store.log.tail
    for wrong in (tail + 1, -1):
        with pytest.raises(ConfigError, match="archivedPosition"):
            world.store.change_options(replace(world.store.options, archived_position=wrong))
    world.store.change_options(replace(world.store.options, archived_position=tail))
    with pytest.raises(ConfigError, match="only grows"):
        world.store.change_options(replace(world.store.options, archived_position=1))
    retain(world.retention)  # writes it
    world.store.close()
    again = open_small(world.disk, world.clock)
    assert again.options.archived_position == tail
    again.close()
    # A log that ends earlier, as after a crash, is archived up to there and not beyond.
    ArchiveMark(world.disk, ROOT / "config" / "archived.json").write(tail + 1000)
    again = open_small(world.disk, world.clock)
    assert again.options.archived_position == again.archived.read() == tail
    again.close()


@pytest.mark.parametrize("content", [b"{", b'{"\xef((": 1}'])
def test_an_unreadable_mark_means_that_nothing_is_archived(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world = World(delete_only_archived=True)
    world.fill(3)
    replace_file(world.disk, ROOT / "config" / "archived.json", content)
    world.disk.usage = 0.99
    assert retain(world.retention).delete_count == 0
    assert "nothing counts as archived" in caplog.text


def test_queues_and_index_follow_the_log() -> None:
    world = World(index_entries=4, consumequeue_segment_bytes=40)
    world.fill(12)
    first, second = get_queue(world.store), get_queue(world.store, queue_id=1)
    assert world.store.index is not None
    files = len(world.store.index.files)
    world.disk.usage = 0.99
    retain(world.retention)  # ten of twelve
    assert world.store.log.start == 10 * SEGMENT_BYTES
    assert (first.min_offset, second.min_offset) == (5, 5)
    assert (len(read_bodies(world.store)), len(read_bodies(world.store, queue_id=1))) == (1, 1)
    assert world.disk.list(ROOT / "consumequeue" / "orders" / "0") == [f"{80:020d}"]
    assert 0 < len(world.store.index.files) < files
    assert world.store.index.files[0].end_position >= world.store.log.start
    forever = 2**60
    assert world.store.reader.find_by_key("orders", "k1", 0, forever) == []
    assert len(world.store.reader.find_by_key("orders", "k11", 0, forever)) == 1
    world.store.close()
    again = open_small(world.disk, world.clock, index_entries=4, consumequeue_segment_bytes=40)
    assert (get_queue(again).min_offset, get_queue(again).max_offset) == (5, 6)


def test_a_queue_without_any_record_left_keeps_counting() -> None:
    world = World()
    world.store.append(make_message("old", body=b"x"))
    world.fill(4)
    world.disk.usage = 0.99
    retain(world.retention)
    old = get_queue(world.store, "old")
    assert (old.min_offset, old.max_offset) == (1, 1)
    world.disk.usage = 0.1
    retain(world.retention)
    assert world.store.append(make_message("old")).queue_offset == 1


def test_a_crash_right_after_a_deletion_gives_no_offset_twice() -> None:
    world = World()
    world.store.append(make_message("old", body=b"x"))
    world.fill(4)
    world.disk.usage = 0.99
    retain(world.retention)
    world.disk.usage = 0.1
    again = open_small(world.disk.crash("drop"), world.clock)
    assert again.append(make_message("old")).queue_offset == 1


def test_a_file_that_cannot_be_deleted_is_an_error_and_the_log_goes_on() -> None:
    world = World()
    world.fill(3)
    world.disk.usage = 0.86
    world.disk.fail_next("remove", Fault.EIO)
    with pytest.raises(StoreIOError):
        retain(world.retention)
    world.store.append(make_message())
    world.store.close()
    again = open_small(world.disk, world.clock)
    assert read_bodies(again)[-1] == b"body"


def test_readers_of_a_deleted_segment_keep_their_bytes() -> None:
    world = World()
    world.fill(3)
    view = world.store.reader.read("orders", 0, 0).slices[0]
    before = bytes(view)
    world.disk.usage = 0.99
    retain(world.retention)
    assert bytes(view) == before
    assert world.store.reader.read("orders", 0, 0).next_offset == 1


# --- a clock that is set, and a log that changes meanwhile ------------------------------------------------------------


def test_a_clock_that_is_set_forward_deletes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.fill(6)
    retain(world.retention)
    before = world.segments()
    world.clock.set_ms(MIDNIGHT + 30 * 24 * HOUR_MS + 4 * HOUR_MS)  # four o'clock, a month later
    assert retain(world.retention, asked=True).delete_count == 0
    assert world.segments() == before
    assert "the clock was set" in caplog.text


def test_what_is_written_after_the_clock_was_set_gets_as_old_as_what_was_before() -> None:
    world = World()
    world.fill(3)
    retain(world.retention)
    world.clock.set_ms(world.clock.now_ms() + 1000 * HOUR_MS)
    retain(world.retention)
    world.fill(3)
    world.clock.advance(70 * HOUR_MS)
    assert retain(world.retention, asked=True).delete_count == 3 + 1
    world.clock.advance(3 * HOUR_MS)
    assert retain(world.retention, asked=True).delete_count == 1


def test_a_clock_that_is_set_forward_and_back_again_is_as_before() -> None:
    world = World()
    world.fill(6)
    retain(world.retention)
    world.clock.set_ms(world.clock.now_ms() + 1000 * HOUR_MS)
    assert retain(world.retention, asked=True).delete_count == 0
    world.clock.set_ms(world.clock.now_ms() - 1000 * HOUR_MS)
    assert retain(world.retention, asked=True).delete_count == 0
    world.clock.advance(72 * HOUR_MS)
    assert retain(world.retention, asked=True).delete_count == 5


def test_segments_that_are_not_those_that_were_seen_stay(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.fill(6)
    world.clock.advance(100 * HOUR_MS)
    seen = world.retention.observe()
    world.store.lineage.truncate(0, epoch=1)
    world.fill(4)
    plan, detached = world.retention.apply(seen, asked=True)
    assert (plan.delete_count, detached) == (0, [])
    assert len(world.store.log.chain.segments) >= 4
    assert "the log changed" in caplog.text
