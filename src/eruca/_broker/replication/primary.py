"""The master's side of replication: listens on the port above the service port and sends the log to every slave.

`core.replication.primary` decides what to send when; this module has the sockets. All appends in two loop iterations
cause one wake-up, which sends each slave everything new in one write, straight from the memory of the log.
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
from eruca._broker.replication.membership import Membership
from eruca._broker.replication.slavelink import SlaveLink
from eruca._broker.standing import Standing
from eruca._core.replication.epochs import last_epoch
from eruca._core.replication.primary import LinkLimits, LogGrew
from eruca._ground.clock import Clock
from eruca._ground.limits import HA_FRAME_BYTES_MAX, HA_LINKS_MAX
from eruca._net.guards import Reporter
from eruca._net.listening import Listener
from eruca._net.tls import ServerTls
from eruca._net.waiting import choose_to_go
from eruca._store.messagestore import MessageStore
from eruca._store.queues.dispatch import Grown
from eruca._wire.bodies import SlaveState
from eruca.errors import ConnectFailed

log = logging.getLogger(__name__)

# Slaves are told what is confirmed after at most this long if nothing else is sent: their readers wait for it.
_TELL_SECONDS: Final = 0.05


@dataclass(eq=False)
class ReplicationServer:
    """The port for slaves. It is open on a slave too, so that a promotion needs no new port, but unused there."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _acknowledgement: Acknowledgement
    _membership: Membership
    # None: only plain connections.
    _tls: ServerTls | None = None
    _links_max: int = HA_LINKS_MAX

    def __post_init__(self) -> None:
        #: The links of slaves, in order of arrival.
        self.links: list[SlaveLink] = []
        self.reporter = Reporter(log)
        self._numbers = itertools.count(1)
        # Connections that have sent nothing yet are counted separately, and the oldest makes room for others.
        self._listener = Listener(self._take_link, self._tls, self.reporter, room=lambda: self._links_max)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_woken = False
        self._is_telling = False
        self._lag = LagMeter()
        # The positions of slaves when their connection was lost.
        self._stuck: dict[str, int] = {}

    # -- starting and stopping ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises ConnectFailed if the port is in use."""
        options = self._options.now
        self._loop = asyncio.get_running_loop()
        try:
            await self._listener.start(options.bind_host, self._standing.port + HA_PORT_ABOVE)
        except ConnectFailed as error:
            raise ConnectFailed(
                f"the port for slaves: {error.args[0]}",
                hint="another process uses the port, which is always listenPort + 1",
            ) from error

    def _take_link(self) -> SlaveLink:
        epoch, reads = last_epoch(self._store.lineage.epochs), self._acknowledgement.reads
        return SlaveLink(
            self,
            next(self._numbers),
            self._store.log,
            reads,
            self._clock,
            self._membership,
            epoch=epoch,
            limits=self.make_limits(),
        )

    async def stop(self) -> None:
        """Close the port and every link."""
        await self._listener.stop()
        self.drop_links("the broker is stopping")

    def drop_links(self, why: str) -> None:
        """Close every link: a mastership starts or ends, and slaves have to agree on their position again."""
        for link in list(self.links):
            link.end(why)
        self._lag.forget()

    def make_limits(self) -> LinkLimits:
        """Return the limits of a link by the current options."""
        options = self._options.now
        return LinkLimits(
            segment_bytes=self._store.options.commitlog_segment_bytes,
            transfer_bytes=min(options.ha_transfer_bytes, HA_FRAME_BYTES_MAX),
            catch_up_bytes_per_second=options.ha_catch_up_bytes,
            heartbeat_s=options.ha_heartbeat_ms / 1000,
            silence_s=options.ha_housekeeping_ms / 1000,
            copy_oldest=options.ha_copy_oldest,
        )

    # -- called by links ---------------------------------------------------------------------------------------------

    def refuse_link(self, host: str) -> str:
        """Return why no further slave is accepted from an address; empty if one is."""
        # Not while a mastership starts or ends, either: confirmations count for a single mastership.
        if not self._standing.writable:
            return "this broker is not the master"
        if len(self.links) >= self._links_max:
            # A connection without a request yet makes room: idle connections must not keep slaves out.
            silent = choose_to_go(((link, link.peer_host) for link in self.links if not link.is_joined), host)
            if silent is None:
                return f"{self._links_max} slaves are connected already"
            silent.end("another slave needs its place")
        return ""

    def refuse_member(self, link: SlaveLink) -> str:
        """Return why a slave that identified itself is not accepted; empty if it is."""
        joined = [other for other in self.links if other is not link and other.is_joined]
        for other in joined:
            if link.member is not None and other.member == link.member and other.address != link.address:
                return f"brokerId {link.member} is used by {other.address}: every member needs its own"
        return ""

    def add(self, link: SlaveLink) -> None:
        """Add a connection."""
        self.links.append(link)

    def on_join(self, link: SlaveLink, begin: int) -> None:
        """Accept a slave that gets the log from a position on."""
        if link.member is not None:
            for other in list(self.links):
                if other is not link and other.member == link.member:
                    other.end("the slave has reconnected")
        self._acknowledgement.condition.add(link.number, link.member)
        # Only from now on does every append need a notification.
        if self.on_dispatched not in self._store.dispatched:
            self._store.dispatched.listen(self.on_dispatched)
        behind = self._store.log.readable_end - begin
        near = link.limits.live_bytes
        if behind > near:
            link.begin_behind()
        kind = "fenced" if link.machine.is_fenced else "classic"
        if link.account is not None:
            kind += f", account {link.account}"
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
        """A link has ended."""
        self.links.remove(link)
        self._acknowledgement.condition.remove(link.number)
        dispatched = self._store.dispatched
        if not any(other.is_joined for other in self.links) and self.on_dispatched in dispatched:
            dispatched.ignore(self.on_dispatched)
        if link.is_joined:
            # A slave with a full disk, for example, reconnects every second without making progress.
            level = logging.DEBUG if self._stuck.get(link.address) == link.position else logging.WARNING
            if len(self._stuck) >= HA_LINKS_MAX:
                self._stuck.clear()
            self._stuck[link.address] = link.position
            log.log(level, "lost slave %s at position %d: %s", link.name, link.position, reason)
        else:
            self.reporter.report_peer(link.peer_host, f"{link.name} is not accepted as a slave: {reason}")

    # -- the log grows -----------------------------------------------------------------------------------------------

    def on_dispatched(self, _: Grown) -> None:
        """The log has grown; slaves get it after the next loop iteration, together with the appends of that one."""
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

    # -- reporting ---------------------------------------------------------------------------------------------------

    def list_slaves(self) -> list[SlaveState]:
        """List the connected slaves, as shown to administrators."""
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
            # Where members elect their master: whether this slave may be elected.
            in_sync=link.member in members if members is not None else lag_bytes < behind_max,
            lag_bytes=lag_bytes,
            lag_ms=self._lag.measure_ms(link.position, tail, self._loop.time()),
            position=link.position,
        )
