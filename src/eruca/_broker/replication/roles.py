"""The role of a broker (master of its name, slave, or fenced: neither, until its role is decided), and its changes.

Only a master accepts messages. Whatever the reason for losing that role, the broker is fenced first, in one step of the
loop: the store rejects all appends, and sends that wait for their acknowledgement fail. Only then comes what takes
time. A slave that becomes the master goes through the same steps as a starting broker: services that store messages of
their own find their position in the copied log and tables, and then the broker opens.

    configuration, or the store's record ----> MASTER <---- become_master (a newer epoch, on the disk first)
                                                 |  ^
                                           fence |  | become_master
                                                 v  |
                                               FENCED ----> SLAVE (become_slave: follows the master named by name
                                                                   servers, or a given one)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from eruca._broker.options import BrokerOptions, BrokerRole
from eruca._broker.registering.registration import Registration
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.replication.claims import Claims
from eruca._broker.replication.masteraddress import NOWHERE, MasterAddress
from eruca._broker.replication.members import KnownMembers
from eruca._broker.replication.metadata import Metadata
from eruca._broker.replication.primary import ReplicationServer
from eruca._broker.replication.replica import Follower
from eruca._broker.replication.returning import NewerMaster
from eruca._broker.replication.services import Services
from eruca._broker.replication.threads import finish_in_thread
from eruca._broker.standing import Standing
from eruca._core.replication.epochs import is_epoch, last_epoch
from eruca._core.replication.kinship import Kinship
from eruca._core.replication.numbering import count_start
from eruca._ground.limits import EPOCH_MAX
from eruca._ground.repeating import Repeating
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import ReplicationState
from eruca._wire.names import FENCED, MASTER, MASTER_ID, SLAVE
from eruca.errors import ErucaError, StoreError

log = logging.getLogger(__name__)

# A master that was replaced and could not become a slave retries after this long.
_STEP_DOWN_AGAIN_S = 5.0


@dataclass(eq=False)
class Roles:
    """The role of one broker."""

    _options: BrokerOptions
    _standing: Standing
    _store: MessageStore
    _acknowledgement: Acknowledgement
    _registration: Registration
    _services: Services
    _members: KnownMembers
    _claims: Claims
    _master: MasterAddress
    # Sends the log to slaves.
    _server: ReplicationServer
    # Copy the log and the tables of the master on a slave.
    _follower: Follower
    _metadata: Metadata

    def __post_init__(self) -> None:
        self._metadata.asked.listen(self._on_master_state)
        self._registration.master_named.listen(self._on_master)
        self._registration.replaced.listen(self._on_replaced)
        # One change at a time; fencing does not wait for its turn.
        self._turn = asyncio.Lock()
        self._fences = 0
        # A name server reported that this master was replaced, and the members are being asked.
        self._is_doubting = False
        self._is_open = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch = Repeating(
            "looking for the master",
            self._watch_master,
            lambda: self._options.ha_reconnect_ms / 1000,
            level=logging.WARNING,
        )

    @property
    def epoch(self) -> int:
        """The current epoch, or on a slave the highest known one."""
        record = self._store.lineage.record
        return last_epoch(record.epochs) if self._standing.state == MASTER else record.seen_epoch

    # -- starting ----------------------------------------------------------------------------------------------------

    async def decide(self) -> None:
        """Take the role given by configuration and store; comes before the ports are open."""
        options, record = self._options, self._store.lineage.record
        self._hold_back(self._standing.reason)
        role = record.role
        if role:
            counts = "the members elect their master now" if options.failover else "this overrides broker.conf"
            log.warning(
                "the last role of this broker was %s according to %s: %s", role, self._store.paths.replication, counts
            )
        if options.failover:
            await self._prepare_slave("the members elect their master")
        elif role == SLAVE or (not role and options.role is BrokerRole.SLAVE):
            await self._prepare_slave("it is a slave")
        elif (newer := (await self._claims.survey(self._choose_master_role())).newer) is not None:
            await self._give_up(newer.epoch)
            self._master.take(newer.place or NOWHERE)
            await self._prepare_slave(newer.reason)
        else:
            await self._lead(count_start(self.epoch, record.led_epoch, options.broker_id), self._fences)

    async def open(self) -> None:
        """Listen for slaves, or start following; the ports are open by now."""
        await self._server.start()
        self._is_open = True
        if self._standing.state == SLAVE:
            self._follow()

    async def stop(self) -> None:
        """Stop everything that a role started."""
        async with self._turn:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._stop_following()
            await self._services.stop()
            await self._server.stop()

    # -- changes -----------------------------------------------------------------------------------------------------

    async def become_master(self, epoch: int, *, why: str) -> None:
        """Accept messages from now on, as the master of a new epoch. Raises StoreError if that epoch cannot start."""
        fences = self._fences
        async with self._turn:
            record = self._store.lineage.record
            if not is_epoch(epoch):
                raise StoreError(f"epoch {epoch} cannot start: the maximum is {EPOCH_MAX}")
            if epoch <= last_epoch(record.epochs) or epoch < record.seen_epoch:
                if self._standing.state == MASTER and epoch == self.epoch:
                    return
                raise StoreError(f"epoch {epoch} cannot start: epoch {record.seen_epoch} is already known")
            if self._standing.state == MASTER:
                self._hold_back(why)
                fences = self._fences
            log.warning("this broker becomes the master of %s, epoch %d: %s", self._options.name, epoch, why)
            if self._follower.state.connected:
                await self._metadata.copy_last()
            try:
                await self._stop_following()
                await self._services.stop()
                self._server.drop_links("a mastership starts")
                # The part that is missing at the end of the log may have been consumed already.
                if moved := self._services.bound_offsets():
                    log.warning(
                        "%d consumer offsets were beyond the end of their queues and were moved back to it", moved
                    )
                await self._lead(epoch, fences)
            except BaseException:
                if fences == self._fences:
                    self._hold_back("it could not become the master")
                    await self._prepare_slave("it could not become the master")
                    self._follow()
                raise
            await self._tell_nameservers()

    async def become_slave(self, master: tuple[str, str] | None, *, why: str, epoch: int = 0) -> None:
        """Follow another broker (service and HA address), or the one named by name servers; none below an epoch."""
        self._hold_back(why)
        async with self._turn:
            log.warning("this broker becomes a slave: %s", why)
            await self._give_up(epoch)
            await self._stop_following()
            await self._services.stop()
            self._server.drop_links("this broker is a slave now")
            self._master.take(master or NOWHERE)
            await self._prepare_slave(why)
            if self._is_open:
                self._follow()
                await self._tell_nameservers()

    async def fence(self, why: str, *, epoch: int = 0) -> None:
        """Stop accepting and acknowledging messages at once; slaves still get the existing ones."""
        self._hold_back(why)
        # Slaves are sent what is in the file, and accepted messages may still be in a buffer.
        self._store.commit()
        if epoch > self.epoch:
            await self._give_up(epoch)

    def _hold_back(self, why: str) -> None:
        """Stop storing and acknowledging. In one step: no other task runs in between."""
        self._fences += 1
        was_master = self._standing.state == MASTER
        self._standing.fence(why)
        self._store.fence(f"this broker is not the master: {why}")
        self._acknowledgement.abandon()
        if was_master:
            log.warning("this broker does not accept messages any more: %s", why)

    # -- being the master --------------------------------------------------------------------------------------------

    async def _lead(self, epoch: int, fences: int) -> None:
        """Start an epoch and open for messages, unless this broker was fenced meanwhile."""
        standing, services, store = self._standing, self._services, self._store
        await services.catch_up()
        await finish_in_thread(store.lineage.begin_epoch, epoch)
        await self._save_role(MASTER)
        if fences != self._fences:
            raise StoreError(f"this broker did not become the master: {standing.reason}")
        standing.prepare_to_lead(self._choose_master_role())
        self._acknowledgement.begin()
        services.prepare_to_lead(self._metadata.topics_position)
        # From here on, services may store messages; they read where their queues end before anything else is stored.
        store.fence("")
        await services.lead()
        if fences != self._fences:
            await services.stop()
            raise StoreError(f"this broker did not become the master: {standing.reason}")
        self._claims.forget()
        self._members.lead(epoch)
        standing.lead(epoch, store.lineage.store_id)

    def _choose_master_role(self) -> BrokerRole:
        """Choose the kind of master: as configured; a slave becomes what its master was."""
        if self._options.role is not BrokerRole.SLAVE:
            return self._options.role
        # No master was ever known: members that elect one do so in order to lose nothing.
        if self._members.mode is None and not self._options.failover:
            log.warning("unknown whether the last master waited for slaves: this one does not (ASYNC_MASTER)")
        is_sync, _ = self._members.mode or (bool(self._options.failover), 0)
        return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER

    # -- being a slave -----------------------------------------------------------------------------------------------

    async def _prepare_slave(self, why: str) -> None:
        """Become a slave without a master for now."""
        self._standing.prepare_to_follow()
        self._acknowledgement.reads.follow_options()
        await self._services.follow()
        self._standing.follow(why)
        self._registration.forget_master()
        self._take_id()
        # Held pulls may have to go to another broker.
        self._services.release_holds()

    def _take_id(self) -> None:
        """Set the id to register with: the configured one; a broker configured as the master takes its successor's."""
        wanted = self._options.broker_id
        if wanted == MASTER_ID:
            wanted = self._members.master_configured_id
        self._standing.take_id(wanted)

    def _follow(self) -> None:
        self._follower.start()
        self._metadata.start()
        self._watch.start()

    async def _stop_following(self) -> None:
        await self._watch.stop()
        await self._follower.stop()
        await self._metadata.stop()

    async def _watch_master(self) -> None:
        """Read the marks in the log, and look for a master while there is none."""
        await self._services.catch_up()
        # Members that elect their master are told who it is, and follow none until then.
        if not self._follower.state.connected and not self._options.failover:
            await self._look_for_master()

    async def _look_for_master(self) -> None:
        if self._standing.may_register:
            await self._registration.register_all()
        elif address := await self._registration.find_master():
            await self._consider_master(address, "")

    async def _consider_master(self, address: str, ha_address: str) -> None:
        """A name server reported a master: follow it if it is a member of this store."""
        try:
            proof = await self._claims.ask(address)
        except ErucaError as error:
            # It may respond in a moment, and a slave asks for proof again before it copies anything.
            log.info("the master %s reported by a name server does not respond: %s", address, error)
            if not self._follower.state.connected and self._standing.may_register:
                self._master.take((address, ha_address))
            return
        if self._standing.state != SLAVE:
            return
        if proof is None:
            self._master.take((address, ha_address))
        elif not self._claims.may_follow(proof):
            text = "not following the master %s reported by a name server: it has a different store"
            self._claims.say_once(address, text % address)
        elif proof.state.role == MASTER and proof.state.epoch >= self.epoch:
            if self._master.find()[0] != address:
                log.info("the master is %s", address)
            self._master.take((address, proof.state.ha_address or ha_address))
            if proof.kinship is Kinship.SAME:
                self._on_master_state(proof.state)

    def _on_master(self, address: str, ha_address: str) -> None:
        """A name server reported another master."""
        if self._options.failover:
            return
        if self._standing.state == SLAVE and address != self._standing.address:
            self._spawn(self._consider_master(address, ha_address))

    def _on_master_state(self, state: ReplicationState) -> None:
        """Handle the state reported by the master."""
        if state.role != MASTER:
            return
        before = self._describe_registration()
        self._members.hear(state)
        if self._standing.state == SLAVE:
            self._take_id()
            if before != self._describe_registration():
                self._spawn(self._tell_nameservers())

    def _describe_registration(self) -> tuple[int, bool, int]:
        """Return what name servers must be told at once when it changes."""
        return self._standing.broker_id, self._standing.may_register, self._members.master_epoch

    # -- claims and tasks --------------------------------------------------------------------------------------------

    def _on_replaced(self, reason: str, epoch: int) -> None:
        """A name server reported that this master was replaced, and in which epoch."""
        if self._standing.state == MASTER and not self._options.failover and not self._is_doubting:
            self._is_doubting = True
            self._spawn(self._answer_claim(reason, epoch))

    async def _answer_claim(self, reason: str, epoch: int) -> None:
        """Give way to a master that proves to be the successor. A name server's claim alone changes nothing."""
        try:
            newer, outbid = await self._claims.weigh(reason, epoch, self.epoch)
            if self._standing.state != MASTER:
                return
            if newer is not None:
                self._hold_back(newer.reason)
                await self._step_down(newer)
            elif outbid:
                why = f"a name server reports {reason!r}, but no member of this store confirms it"
                await self.become_master(outbid, why=why)
        finally:
            self._is_doubting = False

    async def _step_down(self, newer: NewerMaster) -> None:
        """Become a slave, retrying if needed: a disk that is full now must not leave this broker fenced for good."""
        while True:
            try:
                return await self.become_slave(newer.place, why=newer.reason, epoch=newer.epoch)
            except StoreError as error:
                log.error("this broker was replaced and cannot become a slave yet: %s", error)
            await asyncio.sleep(_STEP_DOWN_AGAIN_S)
            if self._standing.state != FENCED or self._turn.locked():
                return  # the role was changed elsewhere, or is about to be

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a role change failed", exc_info=error)

    async def _tell_nameservers(self) -> None:
        if not self._is_open:
            return
        if self._standing.state == MASTER:
            # Even if they already had everything while this was a slave.
            self._services.renew_topics()
        if self._options.failover:
            # Other members wait for this one's next step, so it does not wait for name servers.
            self._spawn(self._registration.register_all())
        else:
            await self._registration.register_all()

    async def _save_role(self, role: str) -> None:
        """Save a role that differs from the configuration."""
        is_configured = (role == SLAVE) == (self._options.role is BrokerRole.SLAVE)
        wanted = "" if is_configured and not self._store.lineage.record.role else role
        if wanted != self._store.lineage.record.role:
            await finish_in_thread(self._store.lineage.save_role, wanted)

    async def _give_up(self, epoch: int) -> None:
        """Give up the mastership, also after a restart, and follow no master below an epoch from now on.

        In this order: a broker that knew the epoch but not that it was replaced would start as the master of a later
        epoch, and displace its successor.
        """
        await self._save_role(SLAVE)
        await finish_in_thread(self._store.lineage.see_epoch, epoch)
