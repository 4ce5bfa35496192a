"""The slave's side of replication: copies the log of its master while the broker is a slave.

Where the log continues is agreed on before (`agreeing`); `core.replication.replica` decides what to do when. This
module carries it out: the data of one read (`masterlink`) is appended and reported once.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from eruca._broker.options import LiveOptions
from eruca._broker.replication.agreeing import Agreement, FindMaster
from eruca._broker.replication.alarm import Alarm
from eruca._broker.replication.lag import LagMeter
from eruca._broker.replication.masterlink import MasterLink
from eruca._broker.replication.readlimit import ReadLimit
from eruca._broker.standing import Standing
from eruca._core.replication.replica import (
    Action,
    Append,
    Appended,
    Close,
    Connected,
    Event,
    Frame,
    Lost,
    Reconnect,
    ReplicaLimits,
    ReplicaLink,
    SendHello,
    SendReport,
    Tick,
)
from eruca._ground.config import FlushMode
from eruca._ground.limits import HA_CHECK_BYTES_MAX
from eruca._ground.repeating import Repeating
from eruca._net.dialing import dial
from eruca._net.tls import OutgoingTls
from eruca._store.flush import GroupCommit
from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import FollowedMaster
from eruca._wire.replication import (
    Hello,
    LogReport,
    encode_fenced_report,
    encode_report,
)
from eruca.errors import ConnectFailed, ErucaError, StoreError

log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 3.0
# The same problem is logged again after this long.
_SAY_AGAIN_SECONDS: Final = 60.0
_SAID_MAX: Final = 16
# A newly elected master is not quite ready, and its senders wait for slaves: the next try comes soon.
_HURRY_SECONDS: Final = 0.1
_HURRY_FOR_SECONDS: Final = 5.0
# A slave that is at most this far behind has caught up.
_NEAR_BYTES: Final = 4 * 1024 * 1024


@dataclass(eq=False)
class Follower:
    """Copies the log of a master while the broker is a slave."""

    _options: LiveOptions
    _standing: Standing
    _store: MessageStore
    _group_commit: GroupCommit
    _reads: ReadLimit
    _agreement: Agreement
    _find_master: FindMaster
    # How it connects to the master; None: without TLS.
    _tls: OutgoingTls | None = None

    def __post_init__(self) -> None:
        self._following = Repeating(
            "copying the master's log",
            self._follow,
            lambda: self._options.now.ha_reconnect_ms / 1000,
            at_once=True,
        )
        self._alarm = Alarm(self._tick)
        self._machine: ReplicaLink | None = None
        self._link: MasterLink | None = None
        self._flushing: asyncio.Future[bool] | None = None
        self._lag = LagMeter()
        self._is_lag_noted = False
        self._epoch = 0
        self._master_start = 0
        self._is_behind = False
        # Data has arrived on this link.
        self._has_begun = False
        # The master has accepted this slave.
        self._is_taken = False
        self._reconnect_at = 0.0
        self._hurry_until = 0.0
        # The store did not accept the last data, so every link ends like the last one.
        self._is_failing = False
        # Which problems were logged, and when.
        self._said: dict[str, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- starting and stopping ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start following; needs a running loop. Meanwhile the store accepts no appends of its own."""
        if self._following.is_running:
            return
        options = self._options.now
        self._loop = asyncio.get_running_loop()
        limits = ReplicaLimits(
            heartbeat_s=options.ha_heartbeat_ms / 1000,
            silence_s=options.ha_housekeeping_ms / 1000,
            reconnect_s=options.ha_reconnect_ms / 1000,
            report_flushed=self._store.options.flush_mode is FlushMode.SYNC,
        )
        self._machine = ReplicaLink(limits, self._loop.time(), seen_epoch=self._store.lineage.seen_epoch)
        self._hurry_until = self._loop.time() + _HURRY_FOR_SECONDS
        self._is_failing = False
        self._following.start()

    async def stop(self) -> None:
        """Stop following; an incomplete record at the end of the log is cut off."""
        if not self._following.is_running:
            return
        await self._following.stop()
        self._drop_link("this broker no longer follows a master")
        self._agreement.finish()

    @property
    def state(self) -> FollowedMaster:
        """The master as seen by this slave."""
        machine = self._machine
        lag_bytes = 0
        lag_ms = 0
        if machine is not None and self._loop is not None:
            tail = self._store.log.readable_end
            lag_bytes = max(0, machine.master_tail - tail)
            lag_ms = self._lag.measure_ms(tail, machine.master_tail, self._loop.time())
        return FollowedMaster(
            address=self._agreement.addresses[0],
            connected=self._is_taken,
            epoch=self._epoch,
            ha_address=self._agreement.addresses[1],
            lag_bytes=lag_bytes,
            lag_ms=lag_ms,
        )

    @property
    def confirmed(self) -> int:
        """The confirmed position that the master reported last."""
        return 0 if self._machine is None else self._machine.master_confirmed

    async def _follow(self) -> float:
        """Follow until the link ends; return how long to wait before the next try."""
        assert self._loop is not None
        try:
            reason = trouble = await self._follow_once()
        except ErucaError as error:
            # The hint may be different every time.
            reason, trouble = str(error), str(error.args[0])
        except Exception:
            self._end("an internal error")
            raise
        self._say(reason, trouble)
        self._end(reason)
        wait_s = max(0.0, self._reconnect_at - self._loop.time())
        return min(wait_s, _HURRY_SECONDS) if self._loop.time() < self._hurry_until else wait_s

    def _end(self, reason: str) -> None:
        """The link has ended, or could not be established."""
        self._drop_link(reason)
        self._handle(Lost(reason))

    def _say(self, reason: str, trouble: str) -> None:
        """Log why nothing is copied; the same problem at most once a minute, even if others come in between."""
        assert self._loop is not None
        now = self._loop.time()
        if now - self._said.get(trouble, -_SAY_AGAIN_SECONDS) < _SAY_AGAIN_SECONDS:
            return
        if len(self._said) >= _SAID_MAX:
            self._said.clear()
        self._said[trouble] = now
        if self._link is not None:
            log.warning("lost the link to the master at %s: %s", self._agreement.addresses[1], reason)
        else:
            log.warning("cannot copy the log of the master: %s; retrying", reason)

    async def _follow_once(self) -> str:
        """Find the master, agree with it, and copy until the link ends; return why it ended."""
        assert self._loop is not None
        plan = await self._agreement.prepare(self._find_master)
        self._reads.cut(plan.position)
        is_fenced = plan.epoch is not None
        try:
            # The port for slaves of a Java broker never uses TLS.
            tls, handshake = self._tls if is_fenced else None, plan.handshake
            link = await dial(
                lambda: MasterLink(self, fenced=is_fenced, handshake=handshake), plan.address, tls, _CONNECT_SECONDS
            )
        except ConnectFailed as error:
            why = error.args[0]
            raise ConnectFailed(f"cannot connect to the master's port for slaves at {plan.address}: {why}") from error
        await link.authenticate()
        self._link = link
        self._epoch = plan.epoch or 0
        self._lag.forget()
        self._is_lag_noted = False
        kind = "fenced" if is_fenced else "classic"
        kind += ", authenticated" if handshake is not None else ""
        log.log(
            logging.DEBUG if self._is_failing else logging.INFO,
            "connected to the master at %s (%s), the log continues at %d",
            plan.address,
            kind,
            plan.position,
        )
        self._is_behind = self._has_begun = False
        # A classic master sends nothing until it has data.
        self._is_taken = plan.epoch is None
        self._master_start = plan.master_start
        self._handle(Connected(plan.position, min(plan.position, self._store.flusher.flushed), plan.epoch))
        self._want_flushed()
        return await link.ended

    def _drop_link(self, reason: str) -> None:
        self._alarm.clear()
        self._is_taken = False
        if self._link is not None:
            self._link.end(reason)
            self._link = None

    @property
    def _replica(self) -> ReplicaLog | None:
        return self._agreement.replica

    # -- the state machine -------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        machine = self._machine
        if machine is None or self._loop is None:
            return
        for action in machine.handle(event, self._loop.time()):
            self._do(action)
        self._arm()

    def _do(self, action: Action) -> None:
        match action:
            case SendReport(position):
                self._report(position)
            case Append(position, data):
                if self._replica is not None:
                    self._replica.copy(position, data)
            case SendHello(epoch, position):
                if self._link is not None:
                    self._link.greet(self._make_hello(epoch, position))
            case Close(reason):
                if self._link is not None:
                    self._link.end(reason)
            case Reconnect(at):
                self._reconnect_at = at
            case _:
                assert_never(action)

    def _report(self, position: int) -> None:
        link, machine = self._link, self._machine
        if link is not None and machine is not None:
            fenced = machine.epoch is not None
            link.write(encode_fenced_report(self._epoch, position) if fenced else encode_report(LogReport(position)))

    def _make_hello(self, epoch: int, position: int) -> Hello:
        options, commitlog = self._options.now, self._store.log
        begin = min(max(position - HA_CHECK_BYTES_MAX, commitlog.start, self._master_start), position)
        found = commitlog.read_bytes(begin, position) or b""
        return Hello(
            epoch=epoch,
            broker_id=options.broker_id,
            position=position,
            check_begin=position - len(found),
            check_crc=zlib.crc32(found),
            address=self._standing.address,
        )

    def on_frames(self, frames: Sequence[Frame]) -> None:
        """Handle the frames of one read: append their data, then report once."""
        link, replica, machine, loop = self._link, self._replica, self._machine, self._loop
        if link is None or replica is None or machine is None or loop is None:
            return
        now, fenced = loop.time(), machine.epoch is not None
        # Data on a fenced link has its own checksum, so it is reported before its records are parsed: senders wait.
        reports_first = fenced and not machine.reports_flushed
        try:
            if self._is_failing:
                replica.dispatch()  # first the data that the disk did not accept before
            for frame in frames:
                for action in machine.handle(frame, now):
                    # Nearly all actions are of this kind, and a busy master causes thousands per second.
                    if isinstance(action, Append):
                        replica.copy(action.position, action.data)
                    else:
                        self._do(action)
            if link.ended.done():
                return
            tail = replica.tail
            has_grown = tail != machine.tail
            if reports_first and has_grown:
                self._tell_appended(tail, now)
            replica.dispatch()
        except StoreError as error:
            self._is_failing = True
            link.end(str(error))
            return
        self._is_taken = True
        # A Java master shows readers everything it has.
        self._reads.learn(machine.master_confirmed if fenced else tail)
        self._note_lag(machine.master_tail, tail, now)
        if has_grown:
            if self._is_failing:
                self._is_failing = False
                log.info("copying the log of the master at %s again", self._agreement.addresses[1])
            if not reports_first:
                self._tell_appended(tail, now)

    def _tell_appended(self, tail: int, now: float) -> None:
        machine = self._machine
        assert machine is not None
        # The part of the log that is still compared with the master's is on disk, but may be wrong.
        flushed = min(tail, self._store.flusher.flushed)
        for action in machine.handle(Appended(tail, flushed), now):
            if isinstance(action, SendReport):
                self._report(action.position)
            else:
                self._do(action)
        # A report postpones the next one, so a timer that is already set fires early enough.
        if not self._alarm.is_set:
            self._arm()
        if machine.reports_flushed:
            self._want_flushed()

    def _want_flushed(self) -> None:
        """Flush data that may be reported only once it is on disk."""
        machine = self._machine
        if self._replica is None or machine is None or not machine.reports_flushed or self._flushing is not None:
            return
        if self._store.flusher.flushed < self._replica.tail:
            self._flushing = self._group_commit.when_flushed(self._replica.tail)
            self._flushing.add_done_callback(self._on_flushed)

    def _on_flushed(self, _: asyncio.Future[bool]) -> None:
        self._flushing = None
        # Even if the flush never gets there because the log was cut: that data may not be reported on this link.
        if self._replica is not None and self._link is not None and self._loop is not None:
            self._tell_appended(self._replica.tail, self._loop.time())

    def _note_lag(self, tail: int, own_tail: int, now: float) -> None:
        behind = tail - own_tail
        # While there is no lag and was none, there is nothing to record.
        if behind > 0 or self._is_lag_noted:
            self._lag.note(tail, now, own_tail)
            self._is_lag_noted = behind > 0
        if self._has_begun and not self._is_behind and behind <= _NEAR_BYTES:
            return
        if not self._has_begun:
            self._has_begun = True
            if behind > _NEAR_BYTES:
                self._is_behind = True
                log.info("copying %d missing bytes of the master's log", behind)
        elif self._is_behind and behind <= _NEAR_BYTES:
            self._is_behind = False
            log.info("caught up with the master at %s", self._agreement.addresses[1])
        elif not self._is_behind and behind > max(_NEAR_BYTES, self._options.now.behind_bytes_max):
            self._is_behind = True
            log.warning("fell behind the master at %s by %d bytes", self._agreement.addresses[1], behind)

    # -- time --------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._link is not None and self._machine is not None:
            self._alarm.set(self._machine.wake_at)

    def _tick(self) -> None:
        self._handle(Tick())
