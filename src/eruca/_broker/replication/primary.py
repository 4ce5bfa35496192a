"""The master's side of replication: listens on the port above the service port and feeds the log to every slave.

What to send when is decided by `core.replication.primary`; here are the sockets. All appends of two turns of the loop
make one wake-up, which gives each slave everything that is new in one write; the log's own memory is what is written.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from typing import Final

from eruca._broker.options import HA_PORT_ABOVE, LiveOptions
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.replication.lag import LagMeter
from eruca._broker.replication.slavelink import SlaveLink
from eruca._broker.standing import Standing
from eruca._core.replication.epochs import last_epoch
from eruca._core.replication.primary import LinkLimits, LogGrew
from eruca._ground.clock import Clock
from eruca._ground.limits import HA_FRAME_BYTES_MAX, HA_LINKS_MAX
from eruca._net.guards import Reporter
from eruca._store.messagestore import MessageStore
from eruca._store.queues.dispatch import Grown
from eruca._wire.bodies import SlaveState
from eruca.errors import ConnectFailed

log = logging.getLogger(__name__)

# So soon slaves are told what is confirmed when nothing else is: it is what their readers get.
_TELL_SECONDS: Final = 0.05


@dataclass(eq=False)
class ReplicationServer:
    """The port for slaves. It is open on a slave too, so that a promotion needs no port, but nobody is fed there."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _acknowledgement: Acknowledgement
    _links_max: int = HA_LINKS_MAX

    def __post_init__(self) -> None:
        #: Links of slaves, in the order they came.
        self.links: list[SlaveLink] = []
        self.reporter = Reporter(log)
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False
        self._is_telling = False
        self._lag = LagMeter()
        # Where slaves were when they were lost.
        self._stuck: dict[str, int] = {}

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises ConnectFailed when the port is taken."""
        options = self._options.now
        self._loop = loop = asyncio.get_running_loop()
        port = self._standing.port + HA_PORT_ABOVE
        try:
            self._server = await loop.create_server(self._take_link, options.bind_host, port, reuse_address=True)
        except OSError as error:
            raise ConnectFailed(
                f"cannot listen on {options.bind_host}:{port}, the port for slaves: {error.strerror or error}",
                hint="another process has the port; it is always the one above listenPort",
            ) from error

    def _take_link(self) -> SlaveLink:
        epoch, reads = last_epoch(self._store.lineage.epochs), self._acknowledgement.reads
        return SlaveLink(
            self, next(self._numbers), self._store.log, reads, self._clock, epoch=epoch, limits=self.make_limits()
        )

    async def stop(self) -> None:
        """Close the port and every link."""
        if self._server is None:
            return
        self._server.close()
        self.drop_links("the broker stops")
        await self._server.wait_closed()
        self._server = None

    def drop_links(self, why: str) -> None:
        """Close every link: a mastership begins or ends, and slaves have to ask again where they stand."""
        for link in list(self.links):
            link.end(why)
        self._lag.forget()

    def make_limits(self) -> LinkLimits:
        """What a link is granted by the options of this moment."""
        options = self._options.now
        return LinkLimits(
            segment_bytes=self._store.options.commitlog_segment_bytes,
            transfer_bytes=min(options.ha_transfer_bytes, HA_FRAME_BYTES_MAX),
            catch_up_bytes_per_second=options.ha_catch_up_bytes,
            heartbeat_s=options.ha_heartbeat_ms / 1000,
            silence_s=options.ha_housekeeping_ms / 1000,
            copy_oldest=options.ha_copy_oldest,
        )

    # -- what links tell ---------------------------------------------------------------------------------------------

    def refuse_link(self) -> str:
        """Why no further slave is taken; an empty text when one is."""
        # Not while a mastership begins or ends, either: what slaves confirm is counted for one only.
        if not self._standing.writable:
            return "this broker is not the master"
        if len(self.links) >= self._links_max:
            # One that has said nothing yet makes room: a crowd that only connects must not keep slaves out.
            silent = next((link for link in self.links if not link.is_joined), None)
            if silent is None:
                return f"{self._links_max} slaves are connected already"
            silent.end("others want its place")
        return ""

    def refuse_member(self, link: SlaveLink) -> str:
        """Why a slave is not taken that says who it is; an empty text when it is."""
        joined = [other for other in self.links if other is not link and other.is_joined]
        for other in joined:
            if link.member is not None and other.member == link.member and other.address != link.address:
                return f"brokerId {link.member} is that of {other.address}: every member needs one of its own"
        return ""

    def add(self, link: SlaveLink) -> None:
        """Keep a connection."""
        self.links.append(link)

    def on_join(self, link: SlaveLink, begin: int) -> None:
        """A slave is accepted, and gets the log from a position on."""
        if link.member is not None:
            for other in list(self.links):
                if other is not link and other.member == link.member:
                    other.end("the slave has connected again")
        self._acknowledgement.condition.add(link.number, link.member)
        # Only from now on must every append say so.
        if self.on_dispatched not in self._store.dispatched:
            self._store.dispatched.listen(self.on_dispatched)
        behind = self._store.log.readable_end - begin
        near = link.limits.live_bytes
        if behind > near:
            link.begin_behind()
        kind = "fenced" if link.machine.is_fenced else "classic"
        level = logging.DEBUG if self._stuck.get(link.address) == begin else logging.INFO
        log.log(level, "slave %s connected (%s) at position %d, %d bytes behind", link.name, kind, begin, behind)

    def on_confirm(self, link: SlaveLink, position: int) -> None:
        """A slave has everything before a position."""
        self._acknowledgement.condition.report(link.number, position)
        self._acknowledgement.release()
        self._note_lag(link)
        if not self._is_telling and self._loop is not None:
            self._is_telling = True
            self._loop.call_later(_TELL_SECONDS, self._tell_confirmed)

    def _tell_confirmed(self) -> None:
        self._is_telling = False
        for link in self.links:
            link.tell_confirmed()

    def _note_lag(self, link: SlaveLink) -> None:
        lag_bytes = self._store.log.readable_end - link.position
        link.note_lag(lag_bytes, link.limits.live_bytes, self._options.now.behind_bytes_max)

    def on_end(self, link: SlaveLink, reason: str) -> None:
        """A link is over."""
        self.links.remove(link)
        self._acknowledgement.condition.remove(link.number)
        dispatched = self._store.dispatched
        if not any(other.is_joined for other in self.links) and self.on_dispatched in dispatched:
            dispatched.ignore(self.on_dispatched)
        if link.is_joined:
            # One whose disk is full, for example, comes again every second and gets no further.
            level = logging.DEBUG if self._stuck.get(link.address) == link.position else logging.WARNING
            if len(self._stuck) >= HA_LINKS_MAX:
                self._stuck.clear()
            self._stuck[link.address] = link.position
            log.log(level, "slave %s is lost at position %d: %s", link.name, link.position, reason)
        else:
            self.reporter.report(link.peer_host, f"{link.name} is not taken as a slave: {reason}")

    # -- the log grows -----------------------------------------------------------------------------------------------

    def on_dispatched(self, _: Grown) -> None:
        """The log has grown; slaves hear of it after the next turn of the loop, with what comes in that one too."""
        loop = self._loop
        if not self._is_woken and loop is not None:
            self._is_woken = True
            loop.call_soon(loop.call_soon, self._wake)

    def _wake(self) -> None:
        self._is_woken = False
        assert self._loop is not None
        commitlog = self._store.log
        grown = LogGrew(commitlog.start, commitlog.readable_end)
        reached = min((link.position for link in self.links if link.is_joined), default=grown.tail)
        self._lag.note(grown.tail, self._loop.time(), reached)
        for link in list(self.links):
            link.handle(grown)
            if link.is_joined:
                self._note_lag(link)

    # -- what others want to know ------------------------------------------------------------------------------------

    def list_slaves(self) -> list[SlaveState]:
        """The slaves that are connected, as administrators see them."""
        tail = self._store.log.readable_end
        return [self._describe(link, tail) for link in self.links if link.is_joined]

    def _describe(self, link: SlaveLink, tail: int) -> SlaveState:
        lag_bytes = max(0, tail - link.position)
        assert self._loop is not None
        members, behind_max = self._acknowledgement.condition.members, self._options.now.behind_bytes_max
        return SlaveState(
            address=link.address,
            broker_id=-1 if link.member is None else link.member,
            fenced=link.machine.is_fenced,
            # Where members elect their master: may it be elected?
            in_sync=link.member in members if members is not None else lag_bytes < behind_max,
            lag_bytes=lag_bytes,
            lag_ms=self._lag.measure_ms(link.position, tail, self._loop.time()),
            position=link.position,
        )
