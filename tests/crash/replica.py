"""Two brokers that copy each other's log, take over from each other, and lose power at any moment.

What both disks had is acknowledged. Each master must have all of it, and at the end both logs are the same.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from functools import partial

from eruca._core.replication.epochs import find_common_end
from eruca._ground.config import StoreOptions
from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.lineage.setaside import find_boundary
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.queues.consumequeue import FILLER_SIZE
from eruca._store.reading.slices import is_damaged
from eruca._storetools.readonly import Kind
from eruca._storetools.verify import verify_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import CrashMode, SimulatedDisk
from eruca.errors import ReplicaCorrupt
from tests.crash.ledger import expect
from tests.crash.world import ROOT, PowerCut, draw_message, draw_options

_ENDS = (CrashMode.DROP, CrashMode.SECTORS, CrashMode.PREFIX, CrashMode.RANDOM, None)
_CHUNKS = (1, 8, 100, 700, 4096, 9000)
_CUTS_MAX = 4


class Member:
    """One broker: its disk, its store, and its copying of the other's log while it follows."""

    def __init__(self, seed: str, options: StoreOptions, clock: VirtualClock) -> None:
        self.rng = random.Random(seed)
        self.options = options
        self.disk = SimulatedDisk(seed=self.rng.getrandbits(32), clock=clock)
        self.store = self._open()
        self.replica: ReplicaLog | None = None

    def _open(self) -> MessageStore:
        return open_store(ROOT, self.options, disk=self.disk, clock=self.disk.clock)

    @property
    def tail(self) -> int:
        """Where its log ends."""
        return self.store.log.tail

    def lead(self, epoch: int) -> None:
        """Become the master."""
        if self.replica is not None:
            self.replica.finish()
            self.replica = None
        self.store.lineage.begin_epoch(epoch)
        self.store.fence("")

    def follow(self, master: Member) -> None:
        """Cut off what the master does not have, and copy from there on."""
        self.store.fence("slave")
        record = self.store.lineage.record
        common = find_common_end(record.epochs, self.tail, master.store.lineage.epochs, master.tail)
        if common < self.tail:
            self.store.lineage.truncate(common, epoch=1)
        self.store.lineage.adopt_epochs(master.store.lineage.epochs, 0)
        self.replica = ReplicaLog(self.store)
        self.replica.start_from(0)

    def copy_from(self, master: Member, count: int) -> None:
        """Copy a few chunks."""
        assert self.replica is not None
        for _ in range(count):
            position = self.replica.tail
            end = min(master.store.log.readable_end, position + self.rng.choice(_CHUNKS))
            data = master.store.log.read_bytes(position, end)
            if data and not data[-1]:
                # A record that ends in zeros and is followed by a hole was cut short, which one must see both to know.
                end = min(master.store.log.readable_end, end + 8)
                data = master.store.log.read_bytes(position, end)
            expect(data is not None, f"the master has nothing at {position}")
            if not data:
                return
            with contextlib.suppress(ReplicaCorrupt):  # a part that a crash had changed was cut off
                self.replica.append(position, memoryview(data))

    def end(self, mode: CrashMode | None) -> None:
        """Lose the power, or be killed, and start again, now and then only at the second try."""
        self._leave(self.disk.kill() if mode is None else self.disk.crash(mode, seed=self.rng.getrandbits(32)))

    def _leave(self, disk: SimulatedDisk) -> None:
        self.disk, self.replica = disk, None
        for _ in range(_CUTS_MAX):
            if self.rng.random() < 0.7:
                break
            if not self.is_cut_off(self._reopen):
                return
        self._reopen()

    def _reopen(self) -> None:
        self.store = self._open()

    def is_cut_off(self, work: Callable[[], None]) -> bool:
        """Do something and lose the power at one of its calls, leaving a disk; False when it was done before."""
        disk, call = self.disk, self.disk.calls + self.rng.randint(1, 60)
        mode, seed = self.rng.choice(_ENDS), self.rng.getrandbits(32)
        left: list[SimulatedDisk] = []

        def count(number: int, operation: str, path: str) -> None:
            if number == call:
                left.append(disk.kill() if mode is None else disk.crash(mode, seed=seed))
                raise PowerCut

        disk.on_call = count
        with contextlib.suppress(PowerCut):
            work()
        disk.on_call = None
        if left:
            self.disk = left[0]
        return bool(left)


def run_replica(seed: int) -> None:
    """One seed: appends, copies, syncs, crashes and changes of the master."""
    rng = random.Random(f"replica:{seed}")
    clock = VirtualClock()
    options = draw_options(rng, transient=False)
    leader, follower = (Member(f"replica:{seed}:{number}", options, clock) for number in range(2))
    epoch = 1
    leader.lead(epoch)
    follower.follow(leader)
    acknowledged = b""
    number = 0
    for _ in range(rng.randint(3, 8)):
        for _ in range(rng.randint(5, 40)):
            drawn = rng.random()
            number += 1
            clock.advance(rng.choice((1, 10, 4000)))
            if drawn < 0.5:
                leader.store.append(draw_message(rng, number))
            elif drawn < 0.8:
                follower.copy_from(leader, rng.randint(1, 4))
            elif drawn < 0.9:
                assert follower.replica is not None
                copied = min(follower.replica.tail, follower.replica.dispatched)
                end = min(leader.store.flusher.sync_log(), follower.store.flusher.sync_log(), copied)
                end = find_boundary(leader.store.log.chain, end, leader.store.damage.items)
                acknowledged = max(acknowledged, leader.store.log.read_bytes(0, end) or b"", key=len)
            else:
                rng.choice((leader, follower)).store.flusher.sync_derived()
        ending = rng.random()
        epoch += 1
        if ending < 0.4:  # the slave dies and comes back
            follower.end(rng.choice(_ENDS))
        elif ending < 0.7:  # the master dies and comes back as such
            leader.end(rng.choice(_ENDS))
            leader.lead(epoch)
        else:  # the slave takes over, from one that is dead or only cut off
            leader, follower = follower, leader
            leader.lead(epoch)
            if rng.random() < 0.7:
                follower.end(rng.choice(_ENDS))
            else:
                follower.replica = None
        _expect_prefix(leader, acknowledged)
        follower.replica = None
        for _ in range(_CUTS_MAX):
            if rng.random() < 0.6 or not follower.is_cut_off(partial(follower.follow, leader)):
                break
            follower.end(None)
        if follower.replica is None:
            follower.follow(leader)
    follower.copy_from(leader, 1_000_000)
    _expect_prefix(leader, acknowledged)
    _expect_same(leader, follower)


def _expect_prefix(leader: Member, acknowledged: bytes) -> None:
    """The master must have what was acknowledged."""
    found = leader.store.log.read_bytes(0, min(leader.tail, len(acknowledged)))
    expect(found == acknowledged, f"of {len(acknowledged)} acknowledged bytes the master has {len(found or b'')}")


def _expect_same(leader: Member, follower: Member) -> None:
    """Both logs and their queues must be the same, and sound."""
    expect(leader.tail == follower.tail, f"the logs end at {leader.tail} and {follower.tail}")
    logs = [member.store.log.read_bytes(0, leader.tail) for member in (leader, follower)]
    expect(logs[0] == logs[1], "the logs differ")
    for topic, queue_id in {
        (queue.topic, queue.queue_id) for member in (leader, follower) for queue in member.store.queues
    }:
        ends = [_find_end(member, topic, queue_id) for member in (leader, follower)]
        expect(ends[0] == ends[1], f"{topic} {queue_id} ends at {ends[0]}, for the slave at {ends[1]}")
    properties = {
        "maxHashSlotNum": str(leader.options.index_slots),
        "maxIndexNum": str(leader.options.index_entries),
        "messageIndexEnable": str(leader.options.index_enabled).lower(),
    }
    for member in (leader, follower):
        damage = [(item.position, item.end) for item in member.store.damage.items]
        member.store.close()
        report = verify_store(ROOT, properties, disk=member.disk)
        # Only what a master lost in a crash before it continued, and nothing that its slave made worse.
        found = [item for item in report.findings if item.kind not in (Kind.DAMAGE, Kind.LOST)]
        expect(not found, f"{found[:2]} beside {damage}")


def _find_end(member: Member, topic: str, queue_id: int) -> int:
    """Where a queue ends; entries for lost messages at its end do not count, until a message comes behind them."""
    queue = member.store.queues.get(topic, queue_id)
    end = 0 if queue is None else queue.max_offset
    while queue is not None and end > 0:
        entry = queue.entry(end - 1)
        if (
            entry is not None
            and entry.size != FILLER_SIZE
            and not is_damaged(entry.position, member.store.damage.items)
        ):
            break
        end -= 1
    return end
