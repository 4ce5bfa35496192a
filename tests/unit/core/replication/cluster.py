"""A cluster in memory: three members with real link machines and real frames over a network that a seed makes bad.

Time, disk and network are numbers and bytes. A member's disk loses what was not flushed when it crashes. The network
delivers in any portions, breaks at any byte, and flips bits. Operators promote members as `eruca cluster promote` does:
with the word of enough members, who hear of the new epoch before it begins.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from itertools import count

from eruca._core.replication import primary, replica
from eruca._core.replication.epochs import Epoch, drop_unwritten, find_common_end, last_epoch
from eruca._core.replication.numbering import count_promotion, count_start
from eruca._core.replication.primary import LinkLimits, PrimaryLink
from eruca._core.replication.replica import ReplicaLimits, ReplicaLink
from eruca._core.replication.synced import SyncCondition
from eruca._store.lineage.replicationstate import begin_epoch
from eruca._wire.replication import (
    HELLO_MAGIC,
    Chunk,
    FencedDecoder,
    Hello,
    LogReport,
    Refusal,
    Report,
    SlaveDecoder,
    encode_fenced,
)
from eruca.errors import WireError

SEGMENT = 256
CHECK = 32
LIMITS = LinkLimits(segment_bytes=SEGMENT, fenced_transfer_bytes=64, window_bytes=200, turn_bytes=150, live_bytes=100)


@dataclass(eq=False)
class Member:
    """A broker: its log, what its disk has of it, and what it has heard of masterships."""

    number: int
    log: bytearray = field(default_factory=bytearray)
    flushed: int = 0
    epochs: tuple[Epoch, ...] = ()
    seen: int = 0
    led: int = 0
    leads: bool = False
    condition: SyncCondition = field(default_factory=lambda: SyncCondition(2, 1 << 20))
    follower: ReplicaLink = field(default_factory=lambda: ReplicaLink(ReplicaLimits(report_flushed=True), 0.0))
    # Which member it last asked for its epochs; the connection comes later, when much may have happened.
    asked: tuple[Member, int] | None = None
    #: What was cut off because no master has it.
    set_aside: list[bytes] = field(default_factory=list)

    @property
    def tail(self) -> int:
        return len(self.log)

    @property
    def standing(self) -> tuple[int, int]:
        """Who has the most: first by the epoch its log ends in, then by its length."""
        return last_epoch(drop_unwritten(self.epochs, self.tail)), self.tail


@dataclass(eq=False)
class Connection:
    """A slave's connection to a master, and the bytes in flight."""

    number: int
    slave: Member
    master: Member
    link: PrimaryLink
    to_master: bytearray = field(default_factory=bytearray)
    to_slave: bytearray = field(default_factory=bytearray)
    from_slave: SlaveDecoder = field(default_factory=SlaveDecoder)
    from_master: FencedDecoder = field(default_factory=FencedDecoder)


class Cluster:
    """Three members, and everything that can happen to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.members = [Member(number) for number in range(3)]
        self.connections: list[Connection] = []
        self.acknowledged = b""
        self.counts = dict.fromkeys(("acknowledged", "promoted", "connected", "damaged", "set aside"), 0)
        self._numbers = count()
        self.lead(self.members[0], 1)

    # -- what masters do -----------------------------------------------------------------------------------------------

    def lead(self, member: Member, epoch: int) -> None:
        """Begin a mastership: on the disk first."""
        member.epochs = tuple(begin_epoch(member.epochs, member.tail, epoch))
        member.flushed = member.tail
        member.seen = member.led = epoch
        member.leads = True
        member.condition = SyncCondition(2, 1 << 20)

    def write(self, member: Member, size: int) -> None:
        """A producer's bytes."""
        member.log += self.random.randbytes(size)
        for connection in self.list_links_of(member):
            self.tell_master(connection, primary.LogGrew(0, member.tail))

    def acknowledge(self, member: Member) -> None:
        """Confirm to producers what is on two disks. It must never contradict an earlier confirmation of any master."""
        if not member.leads:
            return
        end = min(member.condition.confirmed, member.flushed)
        known = min(end, len(self.acknowledged))
        assert member.log[:known] == self.acknowledged[:known], "two masters acknowledged different things"
        if end > known:
            self.acknowledged = bytes(member.log[:end])
            self.counts["acknowledged"] += 1

    def tell_master(self, connection: Connection, event: primary.Event) -> None:
        for action in connection.link.handle(event, self.now):
            self._do_for_master(connection, action)

    def _do_for_master(self, connection: Connection, action: primary.Action) -> None:
        master, epoch = connection.master, connection.link._epoch
        match action:
            case primary.CheckPrefix(position, begin, crc):
                same = zlib.crc32(master.log[begin:position]) == crc
                assert same, "the epochs said that the logs are the same there"
                self.tell_master(connection, primary.CheckAnswered(same))
            case primary.SendChunk(position, size):
                assert position + size <= master.tail
                self._send_chunk(connection, position, bytes(master.log[position : position + size]))
            case primary.SendHeartbeat(position):
                self._send_chunk(connection, position, b"")
            case primary.Confirm(position):
                slave = connection.slave
                assert slave.log[:position] == master.log[:position], "a slave does not have what it confirmed"
                assert slave.flushed >= position
                master.condition.report(connection.number, position)
                self.acknowledge(master)
            case primary.Close(reason):
                connection.to_slave += encode_fenced(Refusal(epoch, reason))
                self.deliver(connection, to_slave=True, size=1 << 20)
                self.cut(connection)

    def _send_chunk(self, connection: Connection, position: int, data: bytes) -> None:
        master = connection.master
        confirmed = min(master.condition.confirmed, master.tail)
        connection.to_slave += encode_fenced(
            Chunk(connection.link._epoch, position, confirmed, master.tail, int(self.now * 1000), data)
        )

    # -- what slaves do ------------------------------------------------------------------------------------------------

    def ask(self, slave: Member, master: Member) -> None:
        """Compare epochs with a master, and cut off what it does not have."""
        if slave is master or last_epoch(master.epochs) < slave.seen or self.find_connection(slave):
            return
        for connection in self.list_links_of(slave):
            self.cut(connection)
        end = find_common_end(slave.epochs, slave.tail, master.epochs, master.tail)
        assert slave.log[:end] == master.log[:end], "the epochs lie"
        if end < slave.tail:
            slave.set_aside.append(bytes(slave.log[end:]))
            self.counts["set aside"] += 1
            del slave.log[end:]
        slave.flushed = min(slave.flushed, end)
        slave.epochs = master.epochs
        slave.seen = last_epoch(master.epochs)
        slave.leads = False
        slave.asked = (master, slave.seen)

    def connect(self, slave: Member) -> None:
        """Connect to the master that was asked."""
        if slave.asked is None or slave.leads or self.find_connection(slave):
            return
        master, epoch = slave.asked
        slave.asked = None
        if not master.leads:
            return
        link = PrimaryLink(LIMITS, self.now, epoch=last_epoch(master.epochs), start=0, tail=master.tail)
        connection = Connection(next(self._numbers), slave, master, link)
        self.connections.append(connection)
        master.condition.add(connection.number, slave.number)
        connection.to_master += HELLO_MAGIC
        self.counts["connected"] += 1
        self.tell_slave(slave, replica.Connected(slave.tail, slave.flushed, epoch))

    def flush(self, member: Member) -> None:
        """The disk has everything now."""
        member.flushed = member.tail
        if self.find_connection(member):
            self.tell_slave(member, replica.Appended(member.tail, member.flushed))
        self.acknowledge(member)

    def tell_slave(self, slave: Member, event: replica.Event) -> None:
        for action in slave.follower.handle(event, self.now):
            self._do_for_slave(slave, action)

    def _do_for_slave(self, slave: Member, action: replica.Action) -> None:
        connection = self.find_connection(slave)
        epoch = slave.follower.epoch
        match action:
            case replica.SendHello(epoch, position):
                begin = max(0, position - CHECK)
                crc = zlib.crc32(slave.log[begin:position])
                assert connection is not None
                connection.to_master += encode_fenced(Hello(epoch, slave.number, position, begin, crc, "slave"))
            case replica.SendReport(position):
                assert connection is not None
                assert epoch is not None
                assert position <= slave.flushed
                connection.to_master += encode_fenced(Report(epoch, position))
            case replica.Append(position, data):
                assert position == slave.tail
                slave.log += data
                self.tell_slave(slave, replica.Appended(slave.tail, slave.flushed))
            case replica.Close():
                assert connection is not None
                self.cut(connection)
            case replica.Reconnect(at):
                assert at > self.now

    # -- the network ---------------------------------------------------------------------------------------------------

    def find_connection(self, slave: Member) -> Connection | None:
        return next((each for each in self.connections if each.slave is slave), None)

    def list_links_of(self, master: Member) -> list[Connection]:
        return [each for each in self.connections if each.master is master]

    def cut(self, connection: Connection) -> None:
        """A connection is lost, with everything in flight."""
        if connection in self.connections:
            self.connections.remove(connection)
            connection.master.condition.remove(connection.number)
            self.tell_slave(connection.slave, replica.Lost("cut"))

    def deliver(self, connection: Connection, *, to_slave: bool, size: int, flips: bool = False) -> None:
        """Let some bytes arrive, perhaps with a wrong bit."""
        stream = connection.to_slave if to_slave else connection.to_master
        data = bytearray(stream[:size])
        del stream[:size]
        if flips and data:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            self.counts["damaged"] += 1
        try:
            if to_slave:
                self._arrive_at_slave(connection, data)
            else:
                self._arrive_at_master(connection, data)
        except WireError:
            self.cut(connection)

    def _arrive_at_slave(self, connection: Connection, data: bytearray) -> None:
        for frame in connection.from_master.feed(data):
            if connection not in self.connections:
                return
            self.tell_slave(connection.slave, frame)

    def _arrive_at_master(self, connection: Connection, data: bytearray) -> None:
        for frame in connection.from_slave.feed(data):
            if connection not in self.connections:
                return
            match frame:
                case Hello():
                    self.tell_master(connection, primary.HelloReceived(frame))
                case Report(epoch, position):
                    self.tell_master(connection, primary.ReportReceived(position, epoch))
                case LogReport(position):
                    self.tell_master(connection, primary.ReportReceived(position))

    # -- what operators and fate do ------------------------------------------------------------------------------------

    def step_down(self, member: Member) -> None:
        """Follow no one and lead no one, until instructed otherwise."""
        member.leads = False
        member.asked = None
        for connection in [*self.connections]:
            if member in (connection.slave, connection.master):
                self.cut(connection)

    def promote(self, reached: list[Member]) -> None:
        """Make the one with the most data of those that are reached the master; two of three must be."""
        assert len(reached) >= 2
        best = max(reached, key=lambda member: member.standing)
        epoch = count_promotion(max(member.seen for member in reached), best.number)
        for member in reached:
            self.step_down(member)
            member.seen = epoch
        # What only this log had of it, after the common history, stays: it is the right one now.
        best = max(reached, key=lambda member: member.standing)
        assert best.log.startswith(self.acknowledged), "the best member lacks what was acknowledged"
        self.lead(best, epoch)
        self.counts["promoted"] += 1

    def crash(self, member: Member) -> None:
        """Lose what the disk does not have, and start again as what it was."""
        led = member.leads
        self.step_down(member)
        del member.log[member.flushed :]
        member.follower = ReplicaLink(ReplicaLimits(report_flushed=True), self.now, seen_epoch=member.seen)
        if led:
            self.lead(member, count_start(member.seen, member.led, member.number))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for connection in [*self.connections]:
            if connection in self.connections:
                self.tell_master(connection, primary.Tick())
            if connection in self.connections:
                self.tell_slave(connection.slave, replica.Tick())

    def do_something(self) -> None:
        """One step of fate."""
        chance = self.random
        member = chance.choice(self.members)
        connection = chance.choice(self.connections) if self.connections else None
        leaders = [each for each in self.members if each.leads]
        match chance.choices(range(9), weights=(12, 60, 20, 3, 12, 12, 0.7, 0.5, 0.5))[0]:
            case 0 if leaders:
                self.write(chance.choice(leaders), chance.randint(1, 120))
            case 1 if connection is not None:
                size = chance.choice((1, 7, 50, 400, 4000))
                flips = chance.random() < 0.02
                self.deliver(connection, to_slave=chance.random() < 0.5, size=size, flips=flips)
            case 2:
                self.flush(member)
            case 3:
                self.pass_time(chance.choice((0.0, 0.1, 2.0, 6.0)))
            case 4 if leaders:
                self.ask(member, chance.choice(leaders))
            case 5:
                self.connect(member)
            case 6 if connection is not None:
                self.cut(connection)
            case 7:
                self.promote(chance.sample(self.members, chance.choice((2, 2, 3))))
            case 8:
                self.crash(member)
            case _:
                pass

    def heal(self) -> None:
        """Everything works again: one master, and all others follow it."""
        self.promote([*self.members])
        (master,) = (each for each in self.members if each.leads)
        slaves = [each for each in self.members if each is not master]
        for _ in range(2000):
            for slave in slaves:
                self.ask(slave, master)
                self.connect(slave)
                self.flush(slave)
            self.flush(master)
            for connection in [*self.connections]:
                for to_slave in (True, False):
                    self.deliver(connection, to_slave=to_slave, size=4000)
            self.pass_time(0.01)
            if all(slave.log == master.log for slave in slaves) and self.acknowledged == master.log:
                return
        raise AssertionError("the members do not come together")
