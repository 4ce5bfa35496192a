"""The replication record: epochs and role last, and a file that cannot be read is never taken for an empty one."""

from __future__ import annotations

import pytest

from eruca._ground.limits import EPOCH_MAX
from eruca._store.filesystem import replace_file
from eruca._store.layout import StorePaths
from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.lineage.replicationstate import Diverged, ReplicationFile, ReplicationRecord, begin_epoch
from eruca._testing.faults import CrashMode, Fault
from eruca._wire.epoch import Epoch
from eruca.errors import StoreError, TableCorrupt
from tests.unit.store.replicas import make_slave
from tests.unit.store.samples import ROOT, make_disk, make_message, open_small

PATH = StorePaths(ROOT).replication
BACKUP = PATH.with_name(PATH.name + ".bak")


def make_record() -> ReplicationRecord:
    """A record with something in every field."""
    return ReplicationRecord(
        role="MASTER",
        epochs=[Epoch(1, 0), Epoch(7, 4096)],
        seen_epoch=9,
        truncating=500,
        diverged=[Diverged(file="7-500-900.log", epoch=7, begin=500, end=900, found_ms=1)],
    )


def test_what_is_saved_is_read() -> None:
    disk = make_disk()
    file = ReplicationFile(disk, PATH)
    assert file.load() == ReplicationRecord()
    file.save(make_record())
    assert ReplicationFile(disk.crash(CrashMode.DROP), PATH).load() == make_record()
    assert b'"epochs"' in disk.read_file(PATH)
    file.save(ReplicationRecord(role="SLAVE"))
    assert file.load().role == "SLAVE"
    assert disk.exists(BACKUP)


@pytest.mark.parametrize(
    "content",
    [b"", b"  ", b"{", b"[]", b'{"role":1}', b'{"epochs":[[2,0],[1,5]]}', b'{"epochs":[[1,9],[2,5]]}',
     b'{"epochs":[[1]]}', b'{"epochs":[[-1,0]]}', None],
)  # fmt: skip
def test_an_unreadable_record_keeps_the_store_closed(content: bytes | None) -> None:
    """Its backup is older than the log, and would attribute bytes to the wrong master."""
    disk = make_disk()
    store = open_small(disk)
    store.lineage.begin_epoch(1)
    store.lineage.begin_epoch(2)
    store.close()
    if content is None:
        disk.remove(PATH)
    else:
        disk.write_file(PATH, content)
    with pytest.raises(TableCorrupt, match="which master wrote") as caught:
        open_small(disk)
    assert BACKUP.name in caught.value.hint
    disk.write_file(PATH, disk.read_file(BACKUP))  # as the hint suggests
    assert open_small(disk).lineage.epochs == [Epoch(1, 0)]


def test_a_record_that_could_not_be_read_is_not_overwritten() -> None:
    with pytest.raises(StoreError):
        ReplicationFile(make_disk(), PATH).save(ReplicationRecord(epochs=[Epoch(2, 0), Epoch(1, 0)]))


def test_epochs_begin_at_the_end_of_the_log_and_last() -> None:
    disk = make_disk()
    store = open_small(disk)
    store.lineage.begin_epoch(1)
    end = store.append(make_message()).size
    store.lineage.begin_epoch(5)
    assert store.lineage.epochs == [Epoch(1, 0), Epoch(5, end)]
    assert store.lineage.seen_epoch == 5
    for epoch in (0, 4, 5):
        with pytest.raises(StoreError, match="cannot begin"):
            store.lineage.begin_epoch(epoch)
    store.append(make_message())
    again = open_small(disk.crash(CrashMode.DROP))  # the message is lost, the epochs are not
    assert again.log.tail == end
    assert again.lineage.epochs == [Epoch(1, 0), Epoch(5, end)]
    again.lineage.begin_epoch(6)
    assert again.lineage.epochs == [Epoch(1, 0), Epoch(5, end), Epoch(6, end, 0)]


def test_epochs_behind_the_tail_are_dropped() -> None:
    assert begin_epoch([Epoch(1, 0), Epoch(2, 50), Epoch(3, 51)], 50, 4) == [Epoch(1, 0), Epoch(2, 50), Epoch(4, 50)]


def test_a_slave_adopts_epochs_and_never_forgets_the_highest() -> None:
    store = make_slave()
    store.lineage.adopt_epochs([Epoch(3, 0), Epoch(8, 100)], 9)
    assert (store.lineage.epochs, store.lineage.seen_epoch) == ([Epoch(3, 0), Epoch(8, 100)], 9)
    store.lineage.adopt_epochs([], 2)
    assert (store.lineage.epochs, store.lineage.seen_epoch) == ([], 9)
    with pytest.raises(StoreError, match="was seen"):
        store.lineage.begin_epoch(8)
    store.lineage.begin_epoch(10)
    store.lineage.save_role("MASTER")
    store.close()
    assert make_slave(store.disk).lineage.record == store.lineage.record  # type: ignore[arg-type]


def test_a_mastership_does_not_begin_in_the_middle_of_a_record() -> None:
    master, slave = open_small(make_disk()), make_slave()
    size = master.append(make_message()).size
    replica = ReplicaLog(slave)
    data = master.log.read_bytes(0, size)
    assert data is not None
    replica.append(0, data[:-5])
    with pytest.raises(StoreError, match="whole record"):
        slave.lineage.begin_epoch(1)
    replica.finish()
    slave.lineage.begin_epoch(1)
    assert slave.lineage.epochs == [Epoch(1, 0)]


@pytest.mark.parametrize(("operation", "times"), [("write_file", 1), ("rename", 2)])  # the first is the backup's
def test_a_failed_save_changes_nothing(operation: str, times: int) -> None:
    disk = make_disk()
    store = open_small(disk)
    store.lineage.begin_epoch(1)
    disk.fail_next(operation, Fault.ENOSPC, times=times)
    with pytest.raises(StoreError):
        store.lineage.begin_epoch(2)
    assert store.lineage.epochs == [Epoch(1, 0)]
    store.lineage.begin_epoch(2)
    assert open_small(disk.kill()).lineage.epochs == [Epoch(1, 0), Epoch(2, 0)]


def test_a_store_gets_an_identity_with_its_first_mastership_and_keeps_it() -> None:
    disk = make_disk()
    store = open_small(disk)
    assert store.lineage.store_id == ""
    store.lineage.begin_epoch(1)
    first = store.lineage.record
    assert len(first.store_id) == 32 and first.store_id_given_at == 0
    store.lineage.begin_epoch(2)
    store.close()
    assert open_small(disk).lineage.store_id == first.store_id
    other = open_small(make_disk())
    other.append(make_message())
    other.lineage.begin_epoch(1)
    assert other.lineage.store_id != first.store_id and other.lineage.record.store_id_given_at == other.log.tail


def test_a_store_that_was_made_to_believe_the_last_number_can_lead_again() -> None:
    disk = make_disk()
    store = open_small(disk)
    store.lineage.begin_epoch(3)
    store.close()
    believed = disk.read_file(PATH).replace(b'"seenEpoch":3', b'"seenEpoch":%d' % (2**63 - 1))
    replace_file(disk, PATH, believed)
    again = open_small(disk)
    assert again.lineage.seen_epoch == 3
    again.lineage.begin_epoch(4)
    with pytest.raises(StoreError, match="is out of range"):
        again.lineage.see_epoch(2**63 - 1)
    with pytest.raises(StoreError, match="is out of range"):
        again.lineage.begin_epoch(EPOCH_MAX + 1)
    assert again.lineage.seen_epoch == 4


def test_thousands_of_starts_leave_a_short_list() -> None:
    store = open_small(make_disk())
    for number in range(1, 50):
        store.append(make_message())
        store.lineage.begin_epoch(number)
    before = store.lineage.epochs
    store.lineage.save(epochs=[*before, *(Epoch(number, store.log.tail) for number in range(50, 5000))])
    store.lineage.begin_epoch(5000)
    # Those that wrote something are all there.
    assert store.lineage.epochs == [*before[:-1], Epoch(5000, store.log.tail)]
    assert store.lineage.record.epochs_joined == 0
