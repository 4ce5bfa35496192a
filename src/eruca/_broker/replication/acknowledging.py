"""When a stored message may be acknowledged: once it is on disk and on the slaves, or when a timeout expires.

Code that stored a message calls `needs_wait`; if that is true, it passes a callback to `when_done`. A wait is an entry
in a deque, without a task or timer of its own: records are in log order, so when the slaves (or the disk) reach a
position, the entries it covers are at the front and complete together, and the first entry is also the first to time
out.

The state of the slaves takes precedence over that of the disk, as in RocketMQ:

    12 FLUSH_SLAVE_TIMEOUT   the slaves did not have it in time, or this broker may not acknowledge any more
    11 SLAVE_NOT_AVAILABLE   there are too few slaves; sent as soon as the message is on disk
    10 FLUSH_DISK_TIMEOUT    the message was not on disk in time
     0 SUCCESS               all required copies exist
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from eruca._broker.administering.rates import PutTimes
from eruca._broker.options import BrokerRole, LiveOptions
from eruca._broker.replication.alarm import Alarm
from eruca._broker.replication.readlimit import ReadLimit
from eruca._broker.standing import Standing
from eruca._core.replication.synced import SyncCondition
from eruca._ground.clock import Clock
from eruca._ground.config import FlushMode
from eruca._store.flush import GroupCommit
from eruca._store.messagestore import MessageStore
from eruca._wire.codes import ResponseCode

log = logging.getLogger(__name__)

Done: TypeAlias = Callable[[ResponseCode], object]

# A wait for a position: deadline and start (loop time), the result so far, and the callback.
_Waiting: TypeAlias = tuple[int, float, float, ResponseCode, Done]

_SYNC_MASTER: Final = BrokerRole.SYNC_MASTER
_SYNC_FLUSH: Final = FlushMode.SYNC
_SUCCESS: Final = ResponseCode.SUCCESS
_DISK_LATE: Final = ResponseCode.FLUSH_DISK_TIMEOUT
_SLAVE_LATE: Final = ResponseCode.FLUSH_SLAVE_TIMEOUT
_NO_SLAVE: Final = ResponseCode.SLAVE_NOT_AVAILABLE


class Gate:
    """Whether this broker is the master at this very moment, as far as its own clock can tell.

    Where the members elect their master, every acknowledgement passes it: it is open while the lease is valid.
    """

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf

    def open_until(self, until: float) -> None:
        """Let acknowledgements pass until a time of the monotonic clock; a time in the past closes the gate."""
        self._until = until

    def close(self) -> None:
        """Let no acknowledgement pass."""
        self._until = -math.inf

    def is_open(self) -> bool:
        """Whether something may be acknowledged now."""
        return self._clock.monotonic() < self._until


@dataclass(eq=False)
class Acknowledgement:
    """Notifies callers when what they stored is safe, as flush mode and role define safe."""

    _options: LiveOptions
    _standing: Standing
    _store: MessageStore
    _group_commit: GroupCommit
    # Measures how long senders waited.
    _times: PutTimes
    #: How far readers may read.
    reads: ReadLimit
    #: Opened by automatic failover while the lease is valid; None without failover.
    gate: Gate | None = None

    def __post_init__(self) -> None:
        self._flusher = self._store.flusher
        self._group_commit.flushed.listen(self._on_flushed)
        # Which slaves have what, reported by the links. Replaced with every mastership.
        self.condition = SyncCondition(self._options.now.in_sync_replicas, self._options.now.behind_bytes_max)
        # Incremented when a mastership ends: earlier entries are then void.
        self.term = 0
        # Whether this broker is the master. If not, nothing is acknowledged any more.
        self._is_leading = True
        self._for_slaves: deque[_Waiting] = deque()
        self._for_disk: deque[_Waiting] = deque()
        self._alarm = Alarm(self._expire)
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- called by the send path -------------------------------------------------------------------------------------

    def needs_wait(self, waits: bool) -> bool:
        """Whether the response must wait. `waits`: the sender waits for disk and slaves. Called for every send."""
        if waits and (self._store.options.flush_mode is _SYNC_FLUSH or self._standing.role is _SYNC_MASTER):
            return True
        # A message stored before this broker was fenced that waited for something else is not acknowledged either.
        return not (self._is_leading and (self.gate is None or self.gate.is_open()))

    def when_done(self, position: int, done: Done, *, waits: bool = True) -> None:
        """Call `done` with the code for the data that ends at a position: now or later, once, and in bounded time."""
        if not self._is_leading:
            done(_SLAVE_LATE)
            return
        now = (self._loop or self._get_loop()).time()
        options, condition = self._options.now, self.condition
        if waits and self._standing.role is _SYNC_MASTER and (options.in_sync_replicas > 1 or condition.members):
            if self._store.options.flush_mode is _SYNC_FLUSH and position > self._flusher.flushed:
                self._group_commit.want(position)  # disk and slaves work in parallel
            if not condition.is_available(position):
                self._take_options()
                self._wait_for_disk(position, now, _NO_SLAVE, done)
                return
            waiting = self._for_slaves
            waiting.append((position, now + options.slave_timeout_ms / 1000, now, _SUCCESS, done))
            if len(waiting) == 1:
                self._arm()
                self._take_options()
                self._tell_senders()  # the slaves may have it already
            return
        code = _SUCCESS if self.gate is None or self.gate.is_open() else _SLAVE_LATE
        if waits:
            self._wait_for_disk(position, now, code, done)
        else:
            done(code)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    async def wait(self, position: int, *, waits: bool = True) -> ResponseCode:
        """Wait until the data that ends at a position is safe, or is known not to be; for infrequent callers."""
        future: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()

        def tell(code: ResponseCode) -> None:
            if not future.done():
                future.set_result(code)

        self.when_done(position, tell, waits=waits)
        return await future

    @property
    def waiting(self) -> int:
        """The number of waits."""
        return len(self._for_slaves) + len(self._for_disk)

    # -- called for slaves and the disk ------------------------------------------------------------------------------

    def release(self) -> None:
        """The slaves may have advanced: complete the waits they cover, and wake readers."""
        self._take_options()
        self._tell_senders()
        self.reads.release()

    def _tell_senders(self) -> None:
        waiting = self._for_slaves
        if not waiting:
            return
        confirmed = self.condition.confirmed
        if waiting[0][0] > confirmed or (self.gate is not None and not self.gate.is_open()):
            return
        if self._store.options.flush_mode is not _SYNC_FLUSH:
            self._tell(waiting, confirmed)
            return
        while waiting and waiting[0][0] <= confirmed:
            position, _, started, code, done = waiting.popleft()
            self._wait_for_disk(position, started, code, done)

    def _tell(self, waiting: deque[_Waiting], reached: int) -> None:
        """Complete the waits at the front that end before a position, and record how long they waited."""
        now = self._get_loop().time()
        # Sends from one read started waiting at the same time, and are recorded together.
        since, count = now, 0
        while waiting and waiting[0][0] <= reached:
            _, _, started, code, done = waiting.popleft()
            if started != since:
                self._times.add(int((now - since) * 1000), count)
                since, count = started, 0
            count += 1
            done(code)
        self._times.add(int((now - since) * 1000), count)

    def _wait_for_disk(self, position: int, started: float, code: ResponseCode, done: Done) -> None:
        options = self._store.options
        if options.flush_mode is not _SYNC_FLUSH or position <= self._flusher.flushed:
            self._times.add(int((self._get_loop().time() - started) * 1000))
            done(code)
            return
        deadline = started + options.sync_flush_timeout_ms / 1000
        self._for_disk.append((position, deadline, started, code, done))
        self._group_commit.want(position)
        if len(self._for_disk) == 1:
            self._arm()

    def _on_flushed(self, flushed: int) -> None:
        self._tell(self._for_disk, flushed)

    # -- time --------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the single timer for the first entry; it is not moved when that entry completes in time."""
        if heads := [waiting[0][1] for waiting in (self._for_slaves, self._for_disk) if waiting]:
            self._alarm.set(min(heads))

    def _expire(self) -> None:
        now = self._get_loop().time()
        waiting = self._for_slaves
        while waiting and waiting[0][1] <= now:
            position, _, started, _, done = waiting.popleft()
            self._wait_for_disk(position, started, _SLAVE_LATE, done)
        waiting = self._for_disk
        while waiting and waiting[0][1] <= now:
            _, _, started, code, done = waiting.popleft()
            self._times.add(int((now - started) * 1000))
            done(code or _DISK_LATE)
        if not self.waiting:
            self._group_commit.stop_wanting()
        self._arm()

    # -- changes -----------------------------------------------------------------------------------------------------

    def _take_options(self) -> None:
        """Apply options that an operator may change."""
        condition, options = self.condition, self._options.now
        condition.required = options.in_sync_replicas
        condition.behind_max = options.behind_bytes_max

    def follow_options(self) -> None:
        """Options that control acknowledging or reading have changed."""
        self.reads.follow_options()
        self.release()

    def begin(self) -> None:
        """Start a mastership: confirmations from the previous one do not apply to this log."""
        self.abandon()
        # The members that automatic failover requires to have everything that may have been acknowledged before.
        members = self.condition.members
        options = self._options.now
        self.condition = SyncCondition(options.in_sync_replicas, options.behind_bytes_max)
        self.condition.set_members(members)
        self._is_leading = True
        self.reads.begin(self.condition)

    def abandon(self) -> None:
        """This broker is no longer a master, or stops: no pending wait is acknowledged."""
        self.term += 1
        self._is_leading = False
        self.reads.end()
        waiting = [*self._for_slaves, *self._for_disk]
        self._for_slaves.clear()
        self._for_disk.clear()
        self._group_commit.stop_wanting()
        self._alarm.clear()
        for _, _, _, code, done in waiting:
            done(code or _SLAVE_LATE)
        if waiting:
            log.warning("%d sends are not acknowledged: this broker is no longer the master", len(waiting))
