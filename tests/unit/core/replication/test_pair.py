"""Both sides of one link together: whatever the limits are, the slave gets the whole log, and in the time it should."""

from __future__ import annotations

import random
import zlib
from collections import deque

import pytest

from eruca._core.replication import primary, replica
from eruca._core.replication.primary import LinkLimits, PrimaryLink
from eruca._core.replication.replica import ReplicaLimits, ReplicaLink
from eruca._wire.replication import Hello
from tests.unit.core.replication.chunks import make_chunk

EPOCH = 5


class Pair:
    """A master with a log, and a slave that copies it; the network keeps the order and takes no time."""

    def __init__(self, limits: LinkLimits, log: bytes, copied: int, *, fenced: bool) -> None:
        self.now = 0.0
        self.log = bytearray(log)
        self.copy = bytearray(log[:copied])
        self.link = PrimaryLink(limits, 0.0, epoch=EPOCH, start=0, tail=len(log))
        self.follower = ReplicaLink(ReplicaLimits(), 0.0)
        self.confirmed = -1
        self.chunks: list[tuple[float, int]] = []
        # What is in flight: an event for one of them, and the bytes that come with it.
        self.network: deque[tuple[primary.Event | None, replica.Event | None, bytes]] = deque()
        self.tell_slave(replica.Connected(copied, copied, EPOCH if fenced else None))

    def tell_master(self, event: primary.Event) -> None:
        self.network.append((event, None, b""))
        self.deliver()

    def tell_slave(self, event: replica.Event) -> None:
        self.network.append((None, event, b""))
        self.deliver()

    def deliver(self) -> None:
        while self.network:
            to_master, to_slave, data = self.network.popleft()
            if to_master is not None:
                for action in self.link.handle(to_master, self.now):
                    self.do_for_master(action)
            if to_slave is not None:
                for answer in self.follower.handle(to_slave, self.now):
                    self.do_for_slave(answer, data)

    def do_for_master(self, action: primary.Action) -> None:
        match action:
            case primary.CheckPrefix(position, begin, crc):
                same = zlib.crc32(self.log[begin:position]) == crc
                self.network.appendleft((primary.CheckAnswered(same), None, b""))
            case primary.SendChunk(position, size):
                self.chunks.append((self.now, size))
                self.send(position, bytes(self.log[position : position + size]))
            case primary.SendHeartbeat(position):
                self.send(position, b"")
            case primary.Confirm(position):
                self.confirmed = position
            case primary.Close(reason):
                raise AssertionError(reason)

    def send(self, position: int, data: bytes) -> None:
        self.network.append((None, make_chunk(position, data, self.follower.epoch, tail=len(self.log)), data))

    def do_for_slave(self, action: replica.Action, data: bytes) -> None:
        match action:
            case replica.SendHello(epoch, position):
                begin = max(0, position - 10)
                crc = zlib.crc32(self.copy[begin:])
                self.network.append((primary.HelloReceived(Hello(epoch, 1, position, begin, crc, "")), None, b""))
            case replica.SendReport(position):
                self.network.append((primary.ReportReceived(position, self.follower.epoch), None, b""))
            case replica.Append(position, appended):
                assert (position, appended) == (len(self.copy), data)
                self.copy += appended
                self.network.appendleft((None, replica.Appended(len(self.copy), 0), b""))
            case replica.Close(reason):
                raise AssertionError(reason)

    def run(self, until: float) -> None:
        """Let time pass from one thing that is due to the next."""
        for _ in range(100_000):
            due = min(self.link.wake_at, self.follower.wake_at)
            if due > until:
                self.now = until
                return
            self.now = max(self.now, due)
            if self.link.wake_at <= self.now:
                self.tell_master(primary.Tick())
            if self.follower.wake_at <= self.now:
                self.tell_slave(replica.Tick())
        raise AssertionError("something is due all the time and never done")

    def write(self, data: bytes) -> None:
        self.log += data
        self.tell_master(primary.LogGrew(0, len(self.log)))


@pytest.mark.parametrize("fenced", [False, True], ids=["classic", "fenced"])
@pytest.mark.parametrize("seed", range(25))
def test_the_slave_gets_everything_whatever_the_limits_are(seed: int, fenced: bool) -> None:
    source = random.Random(seed)
    rate = source.choice((0, 500, 5000))
    limits = LinkLimits(
        segment_bytes=source.choice((64, 100, 1000)),
        transfer_bytes=source.randint(1, 200),
        fenced_transfer_bytes=source.randint(1, 200),
        window_bytes=source.randint(1, 300),
        turn_bytes=source.randint(1, 300),
        live_bytes=source.choice((0, 50, 500)),
        catch_up_bytes_per_second=rate,
    )
    log = source.randbytes(source.randint(0, 3000))
    pair = Pair(limits, log, source.randint(0, len(log)), fenced=fenced)
    for _ in range(20):
        pair.run(pair.now + source.choice((0.0, 0.01, 1.0)))
        pair.write(source.randbytes(source.randint(1, 100)))
    # Every bound on the pace is one of seconds; nothing is left over when they are through.
    pair.run(pair.now + 10.0)
    assert pair.copy == pair.log
    assert pair.confirmed == len(pair.log)
    # Silence alone does not disconnect as long as both sides send heartbeats.
    pair.run(pair.now + 300.0)
    assert pair.confirmed == len(pair.log)


def test_catching_up_takes_the_time_it_should_though_producers_go_on() -> None:
    """10 MB behind at 1 MB/s, while 2 MB/s are written: it is near after ten seconds, not sooner and not never."""
    limits = LinkLimits(segment_bytes=1 << 30, live_bytes=100_000, catch_up_bytes_per_second=1_000_000)
    pair = Pair(limits, bytes(10_000_000), 0, fenced=True)
    near_at = None
    for step in range(1, 1500):
        pair.run(step / 100)
        pair.write(bytes(20_000))
        behind = len(pair.log) - len(pair.copy)
        if near_at is None and behind <= limits.live_bytes:
            near_at = pair.now
    assert near_at is not None
    assert 9.0 < near_at < 11.0
    assert len(pair.copy) == len(pair.log)
    # It went steadily: no second had much more than its share.
    for second in range(9):
        sent = sum(size for at, size in pair.chunks if second <= at < second + 1)
        assert 2_500_000 < sent < 3_500_000
