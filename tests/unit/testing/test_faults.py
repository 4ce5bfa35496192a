"""The fault disk keeps its own promises: a test disk that is kinder than a real one proves nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.clock import Clock
from eruca._store.filesystem import FileSystem, LocalFileSystem, Mapping
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import BLOCK, COUNTED_OPERATIONS, SECTOR, CrashMode, Fault, FaultPlan, SimulatedDisk
from eruca.errors import StoreError, StoreFull, StoreIOError, StoreLocked

ROOT = Path("/store")
LOG = ROOT / "log"
STAGING = ROOT / "log.tmp"


def make_disk(seed: int = 0, capacity_bytes: int | None = None) -> SimulatedDisk:
    """A disk with an empty, durable store directory and no call counted."""
    disk = SimulatedDisk(seed=seed, capacity_bytes=capacity_bytes)
    disk.make_directory(ROOT)
    disk.journal.commit()
    disk.calls = 0
    disk.trace.clear()
    return disk


def make_log(disk: FileSystem, size: int = 4 * SECTOR, *, durable: bool = True, path: Path = LOG) -> Mapping:
    """A mapped file of zeros."""
    return disk.create(path, size, staging=STAGING, durable=durable)


def fill(mapping: Mapping, byte: int, start: int = 0, end: int | None = None) -> None:
    """Write one byte all over a range of the mapping."""
    end = mapping.size if end is None else end
    mapping.buffer[start:end] = bytes([byte]) * (end - start)


def read_sectors(image: bytes) -> list[bytes]:
    """An image cut into sectors."""
    return [image[at : at + SECTOR] for at in range(0, len(image), SECTOR)]


def name_sector(sector: bytes, old: int, new: int) -> str:
    """Whether a sector has only (o)ld bytes, only (n)ew ones, or is (t)orn between the two."""
    assert set(sector) <= {old, new}
    return "o" if new not in sector else "n" if old not in sector else "t"


# --- the clock ------------------------------------------------------------------------------------------------------


def test_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(start_ms=5_000)
    as_protocol: Clock = clock
    assert (as_protocol.now_ms(), as_protocol.monotonic()) == (5_000, 0.0)
    clock.advance(1_500)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)
    clock.set_ms(1_000)  # the wall clock goes back, durations do not
    assert (clock.now_ms(), clock.monotonic()) == (1_000, 1.5)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


# --- the plain disk -------------------------------------------------------------------------------------------------


def exercise(fs: FileSystem, root: Path) -> list[object]:
    """Everything a disk without faults answers, for comparison with the machine's own."""
    seen: list[object] = []

    def attempt(call: Callable[[], object]) -> None:
        try:
            seen.append(call())
        except (StoreError, ValueError) as error:
            seen.append(type(error))

    deep = root / "a" / "b"
    fs.make_directory(deep)
    fs.make_directory(deep)
    mapping = fs.create(deep / "0", 10_000, staging=deep / "0.tmp", durable=False)
    mapping.buffer[8_200:8_205] = b"hello"
    second = fs.map(deep / "0", writable=False)
    seen += [mapping.size, second.buffer[8_200:8_205], fs.list(deep), fs.size(deep / "0")]
    seen += [mapping.write(100, b"xyz"), second.buffer[100:103], mapping.write(9_000, memoryview(b"view"))]
    mapping.allocate(0, 5_000)
    mapping.populate(0, 10_000)
    mapping.sync()
    mapping.rewrite(0, 10_000)
    assert 0 <= mapping.next_data(0) <= 100 and mapping.next_data(8_201) == 8_201
    seen.append(fs.read_file(deep / "0").count(0))
    fs.write_file(root / "t", b"one")
    fs.write_file(root / "t", b"two!")
    fs.rename(root / "t", root / "u")
    seen += [fs.read_file(root / "u"), fs.exists(root / "t"), fs.exists(root / "u"), fs.list(root)]
    seen += [fs.is_directory(deep), fs.is_directory(root / "u"), fs.is_directory(root / "none"), fs.list(root / "none")]
    fs.remove(root / "u")
    fs.remove(root / "u")
    fs.remove_directory(deep)  # not empty
    fs.remove_directory(root / "none")
    fs.rename(deep, root / "c")
    seen += [fs.list(root), fs.list(root / "a"), fs.list(root / "c")]
    fs.remove_directory(root / "a")
    seen.append(fs.list(root))
    attempt(lambda: second.write(0, b"read-only"))
    second.close()
    attempt(second.sync)
    attempt(lambda: second.allocate(0, 10))
    attempt(lambda: fs.map(root / "none"))
    attempt(lambda: fs.read_file(root / "none"))
    attempt(lambda: fs.read_file(root))
    attempt(lambda: fs.size(root / "none"))
    attempt(lambda: fs.modified_ms(root / "none"))
    attempt(lambda: fs.rename(root / "none", root / "x"))
    attempt(lambda: fs.write_file(root / "none" / "x", b""))
    attempt(lambda: fs.create(root / "none" / "x", 10, staging=root / "x.tmp", durable=False))
    attempt(lambda: fs.list(root / "c" / "0"))
    attempt(lambda: fs.make_directory(root / "c" / "0"))
    attempt(lambda: fs.make_directory(root / "c" / "0" / "x"))
    attempt(lambda: fs.remove(root / "c"))
    attempt(lambda: fs.remove_directory(root / "c" / "0"))
    attempt(lambda: fs.used_ratio(root / "none"))
    attempt(lambda: fs.lock(root / "none" / "lock"))
    held = fs.lock(root / "lock")
    attempt(lambda: fs.lock(root / "lock"))
    held.release()
    held.release()
    fs.lock(root / "lock").release()
    seen += [fs.read_file(root / "lock"), fs.list(root), fs.exists(root / "x.tmp")]
    mapping.close()
    fs.write_file(root / "empty", b"")
    attempt(lambda: fs.map(root / "empty"))
    return seen


def test_without_faults_it_answers_like_the_real_disk(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    disk.make_directory(tmp_path)
    assert exercise(disk, tmp_path) == exercise(LocalFileSystem(), tmp_path)
    assert disk.injected == [] and disk.bus_errors == []


def test_a_closed_mapping_shows_no_bytes() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    other = disk.map(LOG)
    mapping.close()
    mapping.close()
    assert len(mapping.buffer) == 0
    fill(other, 7)
    assert disk.read_file(LOG) == b"\x07" * other.size


def test_times_come_from_the_clock() -> None:
    clock = VirtualClock(start_ms=1_000)
    disk = SimulatedDisk(clock=clock)
    mapping = disk.create(Path("log"), 1024, staging=Path("log.tmp"), durable=True)
    clock.advance(10)
    mapping.sync()
    assert disk.modified_ms(Path("/log")) == 1_000  # nothing was dirty
    mapping.buffer[0] = 1
    mapping.sync()
    assert disk.modified_ms(Path("/log")) == 1_010
    clock.advance(10)
    disk.write_file(Path("table"), b"x")
    disk.rename(Path("table"), Path("table2"))
    assert disk.modified_ms(Path("table2")) == 1_020
    disk.touch(Path("log"), 77)
    mapping.sync()
    assert disk.modified_ms(Path("log")) == 77
    assert disk.crash("drop").modified_ms(Path("log")) == 77


# --- power loss: bytes ----------------------------------------------------------------------------------------------


def test_a_sync_makes_bytes_durable_and_nothing_else_does() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 1)
    assert disk.crash("drop").read_file(LOG) == bytes(mapping.size)
    mapping.sync()
    fill(mapping, 2, SECTOR, 2 * SECTOR)
    assert disk.crash("drop").read_file(LOG) == b"\x01" * mapping.size
    for seed in range(50):
        left = read_sectors(disk.crash(seed=seed).read_file(LOG))
        assert [set(sector) for sector in left[:1] + left[2:]] == [{1}] * 3  # synced sectors never change
        assert set(left[1]) <= {1, 2}


def test_random_crashes_keep_lose_and_tear_sectors_independently() -> None:
    disk = make_disk()
    mapping = make_log(disk, 8 * SECTOR)
    fill(mapping, 1)
    mapping.sync()
    fill(mapping, 2)
    patterns: set[str] = set()
    cuts: set[int] = set()
    for seed in range(300):
        pattern = ""
        for sector in read_sectors(disk.crash("random", seed=seed).read_file(LOG)):
            kind = name_sector(sector, 1, 2)
            if kind == "t":
                edge = len(sector) - len(sector.lstrip(sector[:1]))
                assert len(set(sector[edge:])) == 1  # torn at one byte
                cuts.add(edge)
            pattern += kind
        patterns.add(pattern)
    assert len(patterns) > 100
    assert len(cuts) > 100
    for position in range(8):
        assert {pattern[position] for pattern in patterns} == {"o", "n", "t"}
    assert any(pattern.find("o") < pattern.rfind("n") for pattern in patterns)  # a later one kept, an earlier one lost


def test_prefix_crashes_keep_sectors_up_to_one_point() -> None:
    disk = make_disk()
    mapping = make_log(disk, 8 * SECTOR)
    fill(mapping, 2)
    lengths = set()
    for seed in range(200):
        image = disk.crash("prefix", seed=seed).read_file(LOG)
        kinds = [name_sector(sector, 0, 2) for sector in read_sectors(image)]
        assert "".join(kinds).lstrip("n").lstrip("t").strip("o") == "" and kinds.count("t") <= 1
        lengths.add(kinds.count("n"))
    assert lengths == set(range(9))


def test_the_mode_of_a_crash_comes_from_the_seed() -> None:
    disk = make_disk()
    mapping = make_log(disk, 8 * SECTOR)
    fill(mapping, 2)
    images = {disk.crash(seed=seed).read_file(LOG) for seed in range(100)}
    assert bytes(mapping.size) in images
    assert len(images) > 30


def run_workload(seed: int) -> SimulatedDisk:
    """A few calls with faults in between, the same for the same seed."""
    disk = make_disk(seed)
    disk.plan = FaultPlan.scatter(seed, 40, 0.2)
    for number in range(10):
        path = ROOT / f"{number}"
        try:
            mapping = disk.create(path, 3 * SECTOR + 100, staging=STAGING, durable=number % 2 == 0)
            fill(mapping, number + 1, 0, 1000)
            mapping.write(1200, b"through the file")
            mapping.sync()
            fill(mapping, number + 2, 900, 1600)
            disk.write_file(ROOT / "table.tmp", b"%d" % number * 700)
            disk.rename(ROOT / "table.tmp", ROOT / "table")
            disk.remove(ROOT / f"{number - 3}")
        except StoreError:
            continue
    return disk


def test_a_seed_replays() -> None:
    distinct = set()
    for seed in range(40):
        one, two = run_workload(seed), run_workload(seed)
        assert one.trace == two.trace and one.injected == two.injected
        first = one.crash()
        assert first.snapshot() == two.crash().snapshot() == one.crash().snapshot()
        assert first.seed == two.crash().seed
        assert one.crash(seed=seed + 1).snapshot() == two.crash(seed=seed + 1).snapshot()
        distinct.add(repr(first.snapshot()))
    assert len(distinct) > 30


def test_a_crash_leaves_the_disk_itself_alone() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    held = disk.lock(ROOT / "lock")
    fill(mapping, 3)
    after = disk.crash("drop")
    fill(mapping, 4)
    assert disk.read_file(LOG) == b"\x04" * mapping.size
    assert after.read_file(LOG) == bytes(mapping.size)
    assert after.calls == 1
    after.lock(ROOT / "lock")
    held.release()
    after.map(LOG).buffer[0] = 9
    assert mapping.buffer[0] == 4
    assert after.crash("drop").read_file(LOG) == bytes(mapping.size)


def test_after_a_crash_what_was_found_is_durable() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 2)
    for seed in range(30):
        found = disk.crash("random", seed=seed)
        assert found.crash("drop").snapshot() == found.snapshot() == found.snapshot(durable=True)


@given(st.lists(st.tuples(st.integers(0, 2999), st.integers(0, 255)), max_size=20), st.integers(0, 2**32))
def test_every_byte_after_a_crash_is_the_old_or_the_new_one(writes: list[tuple[int, int]], seed: int) -> None:
    disk = make_disk(seed)
    mapping = make_log(disk, 3_000)
    old = bytes(at * 7 % 251 for at in range(3_000))
    mapping.buffer[:] = old
    mapping.sync()
    for at, byte in writes:
        mapping.buffer[at] = byte
    new = bytes(mapping.buffer)
    left = disk.crash().read_file(LOG)
    assert len(left) == 3_000
    assert all(byte in (before, after) for byte, before, after in zip(left, old, new, strict=True))


# --- power loss: names ----------------------------------------------------------------------------------------------


def test_a_crash_keeps_a_prefix_of_the_journal() -> None:
    disk = make_disk()
    names = [f"{number}" for number in range(6)]
    for name in names:
        make_log(disk, durable=False, path=ROOT / name)
    disk.remove(ROOT / "0")
    kept: set[tuple[str, ...]] = set()
    for seed in range(400):
        after = disk.crash("random", seed=seed)
        found = after.list(ROOT)
        kept.add(tuple(found))
        files = [name for name in found if name != STAGING.name]
        assert files in [names[:count] for count in range(7)] + [names[1:]]
        for name in files:
            assert after.size(ROOT / name) == 4 * SECTOR  # under its name it is whole or not there
        if STAGING.name in found:
            assert after.size(STAGING) in (0, 4 * SECTOR)
    assert {tuple(names[:count]) for count in range(7)} <= kept
    assert tuple(names[1:]) in kept
    assert disk.crash("drop").list(ROOT) == []


@pytest.mark.parametrize(
    "commit",
    [
        lambda disk: make_log(disk, path=ROOT / "z", durable=True),
        lambda disk: disk.rename(ROOT / "a", ROOT / "b"),
        lambda disk: disk.write_file(ROOT / "table", b"x"),
        lambda disk: disk.map(ROOT / "old").sync(),
    ],
    ids=["durable create", "rename", "write_file", "sync of another file"],
)
def test_a_durable_call_commits_all_names_before_it(commit: Callable[[SimulatedDisk], object]) -> None:
    disk = make_disk()
    make_log(disk, path=ROOT / "old")
    make_log(disk, path=ROOT / "gone")
    disk.make_directory(ROOT / "deep" / "er")
    make_log(disk, path=ROOT / "a", durable=False)
    disk.remove(ROOT / "gone")
    assert disk.crash("drop").list(ROOT) == ["gone", "old"]  # a removed file comes back
    commit(disk)
    assert disk.pending() == []
    make_log(disk, path=ROOT / "later", durable=False)
    found = disk.crash("drop").list(ROOT)
    assert "deep" in found and ("a" in found or "b" in found)
    assert "gone" not in found and "later" not in found
    assert disk.crash("drop").is_directory(ROOT / "deep" / "er")


def test_a_strict_datasync_commits_the_file_but_not_its_rename() -> None:
    disk = make_disk()
    disk.strict_datasync = True
    mapping = make_log(disk, durable=False)
    other = make_log(disk, path=ROOT / "other", durable=False)
    fill(mapping, 5)
    mapping.sync()
    after = disk.crash("drop")
    assert after.list(ROOT) == [STAGING.name]
    assert after.read_file(STAGING) == b"\x05" * mapping.size
    other.sync()  # its entries come after the rename of the first one
    assert "log" in disk.crash("drop").list(ROOT)


def test_a_rename_carries_unsynced_bytes_that_a_crash_may_take() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 6)
    disk.rename(LOG, ROOT / "new")
    assert disk.crash("drop").read_file(ROOT / "new") == bytes(mapping.size)
    mapping.sync()
    assert disk.crash("drop").read_file(ROOT / "new") == b"\x06" * mapping.size


def test_directories_move_with_what_is_in_them() -> None:
    disk = make_disk()
    disk.make_directory(ROOT / "q" / "0")
    disk.write_file(ROOT / "q" / "0" / "f", b"1")
    disk.rename(ROOT / "q", ROOT / "p")
    assert disk.crash("drop").read_file(ROOT / "p" / "0" / "f") == b"1"
    disk.make_directory(ROOT / "q" / "0")
    with pytest.raises(StoreIOError, match="not empty"):
        disk.rename(ROOT / "q", ROOT / "p")


# --- the death of a process -----------------------------------------------------------------------------------------


def test_a_kill_keeps_all_bytes_frees_locks_and_detaches_mappings() -> None:
    disk = make_disk()
    mapping = make_log(disk, durable=False)
    disk.lock(ROOT / "lock")
    fill(mapping, 8)
    after = disk.kill()
    fill(mapping, 9)
    assert after.read_file(LOG) == b"\x08" * mapping.size
    after.lock(ROOT / "lock")
    assert after.crash("drop").list(ROOT) == []  # the page cache survived, the power loss still takes it
    again = after.map(LOG)
    again.sync()
    assert after.crash("drop").read_file(LOG) == b"\x08" * mapping.size
    assert disk.crash("drop").list(ROOT) == []


def test_a_kill_remembers_what_a_failed_sync_forgot() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 8)
    disk.fail_next("sync", "eio")
    with pytest.raises(StoreIOError):
        mapping.sync()
    after = disk.kill()
    after.map(LOG).sync()
    assert after.crash("drop").read_file(LOG) == bytes(mapping.size)


# --- failed syncs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "error"), [(Fault.EIO, StoreIOError), (Fault.ENOSPC, StoreFull)])
def test_a_failed_sync_forgets_and_a_second_sync_does_not_help(kind: Fault, error: type[StoreError]) -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 1)
    disk.fail_next("sync", kind)
    with pytest.raises(error):
        mapping.sync()
    assert disk.read_file(LOG) == b"\x01" * mapping.size  # readers still see it
    mapping.sync()  # "succeeds"
    assert disk.crash("drop").read_file(LOG) == bytes(mapping.size)
    assert disk.crash("prefix").read_file(LOG) == bytes(mapping.size)  # nobody writes it back either
    mapping.rewrite(SECTOR, 2 * SECTOR + 1)
    mapping.sync()
    left = read_sectors(disk.crash("drop").read_file(LOG))
    assert [sector[0] for sector in left] == [0, 1, 1, 0]
    mapping.rewrite(0, mapping.size)
    mapping.sync()
    assert disk.crash("drop").read_file(LOG) == b"\x01" * mapping.size


def test_a_change_makes_a_forgotten_sector_dirty_again() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 1)
    disk.fail_next("sync", Fault.EIO)
    with pytest.raises(StoreIOError):
        mapping.sync()
    mapping.buffer[5] = 2  # by the mapping
    mapping.write(3 * SECTOR, b"\x01")  # by the file: the same byte, but the kernel does not look
    mapping.sync()
    left = read_sectors(disk.crash("drop").read_file(LOG))
    assert left[0] == b"\x01" * 5 + b"\x02" + b"\x01" * (SECTOR - 6)
    assert [sector[0] for sector in left[1:]] == [0, 0, 1]


def test_a_sync_between_ends_the_forgetting() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 1)
    disk.fail_next("sync", Fault.EIO)
    with pytest.raises(StoreIOError):
        mapping.sync()
    fill(mapping, 0)  # cut off what could not be written ...
    mapping.sync()
    fill(mapping, 1)  # ... and append the very same bytes again
    mapping.sync()
    assert disk.crash("drop").read_file(LOG) == b"\x01" * mapping.size


def test_a_failed_sync_does_not_touch_what_was_durable_or_the_journal() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 1)
    mapping.sync()
    make_log(disk, path=ROOT / "new", durable=False)
    fill(mapping, 2, 0, SECTOR)
    disk.fail_next("sync", Fault.EIO)
    with pytest.raises(StoreIOError):
        mapping.sync()
    after = disk.crash("drop")
    assert after.list(ROOT) == ["log"]
    assert after.read_file(LOG) == b"\x01" * mapping.size
    fill(mapping, 3, SECTOR, 2 * SECTOR)
    mapping.sync()
    assert [sector[0] for sector in read_sectors(disk.crash("drop").read_file(LOG))] == [1, 3, 1, 1]


def test_a_forgotten_sector_is_seldom_on_the_disk() -> None:
    disk = make_disk()
    mapping = make_log(disk, SECTOR)
    fill(mapping, 1)
    disk.fail_next("sync", Fault.EIO)
    with pytest.raises(StoreIOError):
        mapping.sync()
    lost = sum(disk.crash("random", seed=seed).read_file(LOG) == bytes(SECTOR) for seed in range(200))
    assert 150 < lost < 200


def test_broken_sync_fails_everything_that_syncs() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    disk.write_file(ROOT / "table", b"old")
    disk.broken_sync = True
    mapping.buffer[0] = 1
    for _ in range(2):
        with pytest.raises(StoreIOError):
            mapping.sync()
    with pytest.raises(StoreIOError):
        make_log(disk, path=ROOT / "new")
    assert not disk.exists(ROOT / "new")
    with pytest.raises(StoreIOError):
        disk.write_file(ROOT / "table", b"new!")
    assert disk.read_file(ROOT / "table") == b"new!"
    assert disk.crash("drop").read_file(ROOT / "table") == b"old"
    with pytest.raises(StoreIOError):
        disk.rename(LOG, ROOT / "log2")
    assert disk.exists(ROOT / "log2")
    assert disk.crash("drop").exists(LOG)
    make_log(disk, path=ROOT / "lazy", durable=False)
    disk.broken_sync = False
    mapping.buffer[0] = 2
    mapping.sync()
    assert disk.crash("drop").read_file(ROOT / "log2")[0] == 2


# --- injected faults ------------------------------------------------------------------------------------------------


def call_everything(disk: SimulatedDisk) -> list[tuple[str, Callable[[], object]]]:
    """One call of each counted operation, and what is not counted in between."""
    mapping = disk.create(LOG, 4 * SECTOR, staging=STAGING, durable=True)
    disk.write_file(ROOT / "table", b"0123456789")
    disk.make_directory(ROOT / "dir")

    def uncounted() -> None:
        mapping.populate(0, 10)
        mapping.rewrite(0, 10)
        mapping.next_data(0)
        disk.exists(LOG)
        disk.is_directory(ROOT)
        disk.used_ratio(ROOT)
        disk.map(LOG).close()

    return [
        ("map", uncounted),
        ("create", lambda: make_log(disk, path=ROOT / "other")),
        ("allocate", lambda: mapping.allocate(0, 10)),
        ("write", lambda: mapping.write(0, b"0123456789")),
        ("sync", mapping.sync),
        ("read_file", lambda: disk.read_file(ROOT / "table")),
        ("write_file", lambda: disk.write_file(ROOT / "table2", b"0123456789")),
        ("rename", lambda: disk.rename(ROOT / "table", ROOT / "table3")),
        ("remove", lambda: disk.remove(ROOT / "table2")),
        ("remove_directory", lambda: disk.remove_directory(ROOT / "dir")),
        ("make_directory", lambda: disk.make_directory(ROOT / "dir2")),
        ("sync_directory", lambda: disk.sync_directory(ROOT)),
        ("list", lambda: disk.list(ROOT)),
        ("size", lambda: disk.size(LOG)),
        ("modified_ms", lambda: disk.modified_ms(LOG)),
        ("lock", lambda: disk.lock(ROOT / "lock")),
    ]


def test_the_kth_call_fails_and_only_that() -> None:
    calls = call_everything(make_disk())
    assert {operation for operation, _ in calls} == COUNTED_OPERATIONS
    for kind, error in ((Fault.EIO, StoreIOError), (Fault.ENOSPC, StoreFull)):
        for k, (expected, _) in enumerate(calls):
            disk = make_disk()
            steps = call_everything(disk)
            before = disk.calls
            disk.fail(before + k + 1, kind)
            for index, (operation, call) in enumerate(steps):
                if index == k:
                    with pytest.raises(error):
                        call()
                    break
                call()
                assert disk.trace[-1][:2] == (before + index + 1, operation)
            assert [(number, operation) for number, operation, _, _ in disk.injected] == [(before + k + 1, expected)]
            assert disk.calls == before + k + 1


def test_each_operation_can_be_told_to_fail_next() -> None:
    for k, operation in enumerate(operation for operation, _ in call_everything(make_disk())):
        disk = make_disk()
        call = call_everything(disk)[k][1]
        disk.fail_next(operation, "eio", times=2)
        for _ in range(2):
            with pytest.raises(StoreIOError):
                call()
    with pytest.raises(ValueError, match="cannot fail"):
        make_disk().fail_next("close", Fault.EIO)


def test_a_fault_that_was_cleared_does_not_strike() -> None:
    disk = make_disk()
    disk.fail(1, Fault.EIO)
    disk.fail_next("list", Fault.EIO)
    disk.plan.clear()
    assert disk.list(ROOT) == []


def test_the_trace_names_the_calls() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    mapping.sync()
    disk.rename(LOG, ROOT / "new")
    assert disk.trace == [(1, "create", "/store/log"), (2, "sync", "/store/log"), (3, "rename", "/store/log")]


def test_a_hook_sees_each_call_before_its_effect() -> None:
    disk = make_disk()
    images: list[tuple[str, bool, bool]] = []

    def look(number: int, operation: str, path: str) -> None:
        assert number == disk.calls
        images.append((operation, disk.crash("drop").exists(LOG), path == str(LOG)))

    disk.on_call = look
    make_log(disk).sync()
    assert images == [("create", False, True), ("sync", True, True)]


def test_a_short_write_takes_a_part() -> None:
    counts = set()
    for seed in range(30):
        disk = make_disk(seed)
        mapping = make_log(disk)
        disk.fail_next("write", Fault.SHORT)
        count = mapping.write(10, b"\x01" * 100)
        assert 0 < count < 100
        assert bytes(mapping.buffer) == bytes(10) + b"\x01" * count + bytes(mapping.size - 10 - count)
        counts.add(count)
        disk.fail_next("write", Fault.SHORT)
        with pytest.raises(StoreFull):
            mapping.write(0, b"1")  # a part of one byte is none
    assert len(counts) > 10


def test_a_short_fault_passes_what_cannot_be_short() -> None:
    disk = make_disk()
    disk.fail_next("list", Fault.SHORT)
    assert disk.list(ROOT) == [] and disk.injected == []


def test_a_failed_small_file_has_lost_its_old_bytes() -> None:
    for kind, left, error in (
        (Fault.SHORT, b"01234", StoreFull),
        (Fault.ENOSPC, b"", StoreFull),
        (Fault.EIO, b"0123456789", StoreIOError),
    ):
        disk = make_disk()
        disk.write_file(ROOT / "table", b"what was there")
        disk.fail_next("write_file", kind)
        with pytest.raises(error):
            disk.write_file(ROOT / "table", b"0123456789")
        assert disk.read_file(ROOT / "table") == left
        found = {disk.crash(seed=seed).read_file(ROOT / "table") for seed in range(300)}
        assert b"what was there" in found  # the truncation was not committed
        assert b"" in found
        found.discard(b"what was there")
        assert all(len(data) <= len(left) for data in found)
        disk.write_file(ROOT / "table", b"0123456789")
        assert disk.crash("drop").read_file(ROOT / "table") == b"0123456789"


def test_a_failed_create_leaves_at_most_the_staging_file() -> None:
    found = set()
    for seed in range(60):
        disk = make_disk(seed)
        disk.fail_next("create", Fault.ENOSPC if seed % 2 else Fault.EIO)
        with pytest.raises(StoreError):
            make_log(disk)
        assert not disk.exists(LOG)
        found.add(disk.size(STAGING) if disk.exists(STAGING) else None)
        make_log(disk)  # what was left is no obstacle
        assert disk.list(ROOT) == ["log"]
    assert found == {None, 0, 4 * SECTOR}


def test_a_failed_create_keeps_the_file_that_was_there() -> None:
    disk = make_disk()
    fill(make_log(disk), 1)
    disk.fail_next("create", Fault.EIO)
    with pytest.raises(StoreIOError):
        make_log(disk)
    assert disk.read_file(LOG) == b"\x01" * 4 * SECTOR


def test_a_failed_rename_happened_or_not() -> None:
    outcomes = set()
    for seed in range(30):
        disk = make_disk(seed)
        make_log(disk)
        disk.fail_next("rename", Fault.EIO)
        with pytest.raises(StoreIOError):
            disk.rename(LOG, ROOT / "new")
        outcomes.add(tuple(disk.list(ROOT)))
        assert disk.crash("drop").list(ROOT) == ["log"]
    assert outcomes == {("log",), ("new",)}


def test_scattered_plans_replay() -> None:
    def strike(seed: int) -> list[tuple[int, Fault]]:
        plan = FaultPlan.scatter(seed, 200, 0.3)
        taken = [(number, plan.take(number, "sync")) for number in range(1, 300)]
        return [(number, fault) for number, fault in taken if fault]

    assert strike(1) == strike(1) != strike(2)
    assert 30 < len(strike(1)) < 90
    assert {fault for _, fault in strike(1)} == set(Fault)


# --- room -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_new_blocks_and_only_those() -> None:
    disk = make_disk()
    mapping = make_log(disk, 4 * BLOCK)
    sparse = make_log(disk, 4 * BLOCK, path=ROOT / "sparse", durable=False)
    sparse.allocate(0, BLOCK)
    disk.full = True
    for refused in (
        lambda: make_log(disk, path=ROOT / "new"),
        lambda: make_log(disk, path=ROOT / "new", durable=False),
        lambda: disk.write_file(ROOT / "table", b"x"),
        lambda: disk.make_directory(ROOT / "dir"),
        lambda: disk.lock(ROOT / "lock"),
        lambda: sparse.allocate(0, 2 * BLOCK),
        lambda: sparse.write(BLOCK, b"x"),
    ):
        with pytest.raises(StoreFull):
            refused()
    sparse.allocate(100, BLOCK)
    assert sparse.write(0, b"x") == 1
    assert sparse.write(BLOCK - 2, b"12345") == 2  # as far as the blocks go
    assert mapping.write(3 * BLOCK, b"x") == 1
    mapping.sync()
    disk.remove(ROOT / "table")
    disk.full = False
    sparse.allocate(0, 4 * BLOCK)
    make_log(disk, path=ROOT / "new")
    assert disk.bus_errors == []


def test_writing_a_mapping_without_blocks_on_a_full_disk_is_found_out() -> None:
    disk = make_disk()
    sparse = make_log(disk, 2 * BLOCK, durable=False)
    sparse.buffer[0] = 1
    sparse.sync()
    assert disk.bus_errors == []  # there was room
    disk.full = True
    sparse.buffer[BLOCK + SECTOR] = 1
    sparse.buffer[5] = 2
    sparse.sync()
    assert disk.bus_errors == [(str(LOG), BLOCK + SECTOR)]


def test_capacity_counts_blocks() -> None:
    disk = make_disk(capacity_bytes=10 * BLOCK)
    assert disk.used_ratio(ROOT) == 0
    mapping = make_log(disk, 4 * BLOCK)
    sparse = make_log(disk, 4 * BLOCK, path=ROOT / "sparse", durable=False)
    assert disk.used_ratio(ROOT) == 0.4
    sparse.buffer[BLOCK] = 1
    sparse.sync()
    assert disk.used_ratio(ROOT) == 0.5
    disk.write_file(ROOT / "table", b"x" * (BLOCK + 1))
    assert disk.used_ratio(ROOT) == 0.7
    with pytest.raises(StoreFull):
        make_log(disk, 4 * BLOCK, path=ROOT / "more")
    with pytest.raises(StoreFull):
        disk.write_file(ROOT / "table", b"y" * (5 * BLOCK + 1))
    assert disk.read_file(ROOT / "table") == b"y" * (5 * BLOCK)  # as much as there was room for
    assert disk.used_ratio(ROOT) == 1
    disk.remove(ROOT / "table")
    disk.remove(LOG)
    assert disk.used_ratio(ROOT) == 0.5  # deleted, yet mapped
    mapping.close()
    assert disk.used_ratio(ROOT) == 0.1
    disk.usage = 0.93
    assert disk.used_ratio(ROOT) == 0.93 == disk.crash().used_ratio(Path("/"))


def test_a_write_takes_what_the_free_blocks_hold() -> None:
    disk = make_disk(capacity_bytes=2 * BLOCK)
    sparse = make_log(disk, 4 * BLOCK, durable=False)
    assert sparse.write(100, b"x" * (3 * BLOCK)) == 2 * BLOCK - 100
    assert bytes(sparse.buffer) == bytes(100) + b"x" * (2 * BLOCK - 100) + bytes(2 * BLOCK)
    with pytest.raises(StoreFull):
        sparse.write(2 * BLOCK, b"x")


# --- damage, looking, loading ---------------------------------------------------------------------------------------


def test_damage_reaches_readers_and_the_disk() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 0xFF)
    mapping.sync()
    disk.flip_bit(LOG, 1000, 3)
    assert mapping.buffer[1000] == 0xF7
    disk.tear(LOG, 1500)
    expected = b"\xff" * 1000 + b"\xf7" + b"\xff" * 499 + bytes(mapping.size - 1500)
    assert disk.read_file(LOG) == disk.crash("drop").read_file(LOG) == expected


def test_snapshots_show_both_images() -> None:
    disk = make_disk()
    mapping = make_log(disk, 8)
    mapping.buffer[0] = 1
    disk.lock(ROOT / "lock")
    assert disk.files() == [ROOT / "lock", LOG]
    assert disk.directories() == [Path("/"), ROOT]
    assert disk.snapshot() == {ROOT / "lock": b"lock", LOG: b"\x01" + bytes(7)}
    assert disk.snapshot(durable=True) == {LOG: bytes(8)}


def test_a_real_directory_goes_in_and_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "deep" / "file").write_bytes(bytes(10_000) + b"data" + bytes(5_000))
    (source / "none").write_bytes(b"")
    disk = SimulatedDisk.load(source, at=Path("/s"))
    assert (disk.calls, disk.trace) == (0, [])
    assert disk.crash("drop").snapshot() == disk.snapshot()
    assert disk.modified_ms(Path("/s/none")) == LocalFileSystem().modified_ms(source / "none")
    mapping = disk.map(Path("/s/deep/file"))
    mapping.buffer[0] = 1
    disk.touch(Path("/s/deep/file"), 1_000)
    before = disk.calls
    disk.dump(tmp_path / "target", at=Path("/s"))
    assert disk.calls == before
    again = SimulatedDisk.load(tmp_path / "target", at=Path("/s"))
    assert again.snapshot() == disk.snapshot()
    assert again.directories() == disk.directories()
    assert again.modified_ms(Path("/s/deep/file")) == 1_000


# --- threads --------------------------------------------------------------------------------------------------------


def test_a_sync_in_a_thread_sees_every_byte_written_before_it() -> None:
    disk = make_disk()
    mapping = make_log(disk, 64 * 1024)
    done = threading.Event()
    failures: list[BaseException] = []

    def sync_again_and_again() -> None:
        try:
            while not done.is_set():
                mapping.sync()
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=sync_again_and_again)
    worker.start()
    for at in range(0, mapping.size, 64):
        mapping.buffer[at : at + 64] = b"\x01" * 64
        if at % 8192 == 0:
            disk.crash(seed=at)
            mapping.sync()
            assert disk.crash("drop").read_file(LOG)[: at + 64] == b"\x01" * (at + 64)
    done.set()
    worker.join()
    mapping.sync()
    assert failures == []
    assert disk.crash("drop").read_file(LOG) == b"\x01" * mapping.size


async def test_it_works_on_a_loop_that_refuses_blocking_calls() -> None:
    disk = make_disk()
    mapping = make_log(disk)
    fill(mapping, 1)
    flushing = asyncio.to_thread(mapping.sync)
    disk.write_file(ROOT / "table", b"x")
    await flushing
    disk.lock(ROOT / "lock").release()
    assert disk.crash(CrashMode.DROP).read_file(LOG) == b"\x01" * mapping.size


def test_locks_exclude_on_one_disk() -> None:
    disk = make_disk()
    held = disk.lock(ROOT / "lock")
    with pytest.raises(StoreLocked):
        disk.lock(Path("store/lock"))  # the same file by a relative name
    disk.lock(ROOT / "lock2")
    held.release()
    disk.lock(ROOT / "lock")
