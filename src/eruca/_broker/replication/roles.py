"""What a broker is: the master of its name, a slave, or fenced (neither, until somebody says what). And the change.

A master is the only one that takes messages. Whatever it stops being that for, it is fenced first, in one step of the
loop: the store takes no more appends from anybody, and sends that wait for their acknowledgement are told that there is
none. Only then comes what takes time. A slave that becomes the master goes the way of a broker that starts: what stores
messages by itself finds its place again in the log and the tables that were copied, and then it opens.

    configuration, or the store's record ----> MASTER <---- become_master (a newer epoch, on the disk first)
                                                 |  ^
                                           fence |  | become_master
                                                 v  |
                                               FENCED ----> SLAVE (become_slave: follows whom name servers name, or
                                                                   whom it was told)
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

# A master that was replaced and could not become a slave tries again after so long.
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
    # Feeds slaves.
    _server: ReplicationServer
    # By these a slave has the log and the tables of its master.
    _follower: Follower
    _metadata: Metadata

    def __post_init__(self) -> None:
        self._metadata.asked.listen(self._on_master_state)
        self._registration.master_named.listen(self._on_master)
        self._registration.replaced.listen(self._on_replaced)
        # One change at a time; a fence does not wait for its turn.
        self._turn = asyncio.Lock()
        self._fences = 0
        # A name server says that this master was replaced, and members are being asked.
        self._is_doubting = False
        self._is_open = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch = Repeating(
            "the search for the master",
            self._watch_master,
            lambda: self._options.ha_reconnect_ms / 1000,
            level=logging.WARNING,
        )

    @property
    def epoch(self) -> int:
        """The mastership that is now, or on a slave the highest that was heard of."""
        record = self._store.lineage.record
        return last_epoch(record.epochs) if self._standing.state == MASTER else record.seen_epoch

    # -- the start ---------------------------------------------------------------------------------------------------

    async def decide(self) -> None:
        """Become what configuration and store say; comes before the ports are open."""
        options, record = self._options, self._store.lineage.record
        self._hold_back(self._standing.reason)
        role = record.role
        if role:
            counts = "now the members elect their master" if options.failover else "that counts, and not broker.conf"
            log.warning("this broker was %s last, as %s says: %s", role, self._store.paths.replication, counts)
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
        """Listen for slaves, or begin to follow; the ports are open by now."""
        await self._server.start()
        self._is_open = True
        if self._standing.state == SLAVE:
            self._follow()

    async def stop(self) -> None:
        """End everything that a role began."""
        async with self._turn:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._stop_following()
            await self._services.stop()
            await self._server.stop()

    # -- changes -----------------------------------------------------------------------------------------------------

    async def become_master(self, epoch: int, *, why: str) -> None:
        """Take messages from now on, as the master of a new epoch. Raises StoreError when that one cannot begin."""
        fences = self._fences
        async with self._turn:
            record = self._store.lineage.record
            if not is_epoch(epoch):
                raise StoreError(f"epoch {epoch} cannot begin: an epoch is a number up to {EPOCH_MAX}")
            if epoch <= last_epoch(record.epochs) or epoch < record.seen_epoch:
                if self._standing.state == MASTER and epoch == self.epoch:
                    return
                raise StoreError(f"epoch {epoch} cannot begin: epoch {record.seen_epoch} was seen")
            if self._standing.state == MASTER:
                self._hold_back(why)
                fences = self._fences
            log.warning("this broker becomes the master of %s, epoch %d: %s", self._options.name, epoch, why)
            if self._follower.state.connected:
                await self._metadata.copy_last()
            try:
                await self._stop_following()
                await self._services.stop()
                self._server.drop_links("a mastership begins")
                # What is missing of the log at its end may have been consumed already.
                if moved := self._services.bound_offsets():
                    log.warning("%d offsets of consumers were beyond the end of their queues and are at it now", moved)
                await self._lead(epoch, fences)
            except BaseException:
                if fences == self._fences:
                    self._hold_back("it could not become the master")
                    await self._prepare_slave("it could not become the master")
                    self._follow()
                raise
            await self._tell_nameservers()

    async def become_slave(self, master: tuple[str, str] | None, *, why: str, epoch: int = 0) -> None:
        """Follow another broker (its service and HA address), or whom name servers name; none below an epoch."""
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
        """Take no more messages and acknowledge none, at once; slaves still get what is there."""
        self._hold_back(why)
        # Slaves get what is in the file, and what was taken may still be in a buffer.
        self._store.commit()
        if epoch > self.epoch:
            await self._give_up(epoch)

    def _hold_back(self, why: str) -> None:
        """Let nothing be stored or acknowledged any more. In one step: nothing can come in between."""
        self._fences += 1
        was_master = self._standing.state == MASTER
        self._standing.fence(why)
        self._store.fence(f"this broker is not the master: {why}")
        self._acknowledgement.abandon()
        if was_master:
            log.warning("this broker takes no more messages: %s", why)

    # -- being the master --------------------------------------------------------------------------------------------

    async def _lead(self, epoch: int, fences: int) -> None:
        """Begin an epoch and open for messages, unless somebody has fenced this broker meanwhile."""
        standing, services, store = self._standing, self._services, self._store
        await services.catch_up()
        await finish_in_thread(store.lineage.begin_epoch, epoch)
        await self._save_role(MASTER)
        if fences != self._fences:
            raise StoreError(f"this broker did not become the master: {standing.reason}")
        standing.prepare_to_lead(self._choose_master_role())
        self._acknowledgement.begin()
        services.prepare_to_lead(self._metadata.topics_position)
        # From here on its own services may store, and they look where their queues end before anybody else does.
        store.fence("")
        await services.lead()
        if fences != self._fences:
            await services.stop()
            raise StoreError(f"this broker did not become the master: {standing.reason}")
        self._claims.forget()
        self._members.lead(epoch)
        standing.lead(epoch, store.lineage.store_id)

    def _choose_master_role(self) -> BrokerRole:
        """What kind of master: as configured; a slave becomes what its master was."""
        if self._options.role is not BrokerRole.SLAVE:
            return self._options.role
        # Nobody heard of a master: members that elect one do so in order to lose nothing.
        if self._members.mode is None and not self._options.failover:
            log.warning("nobody said whether the last master waited for slaves: this one does not (ASYNC_MASTER)")
        is_sync, _ = self._members.mode or (bool(self._options.failover), 0)
        return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER

    # -- being a slave -----------------------------------------------------------------------------------------------

    async def _prepare_slave(self, why: str) -> None:
        """Be a slave whose master is not there yet."""
        self._standing.prepare_to_follow()
        self._acknowledgement.reads.follow_options()
        await self._services.follow()
        self._standing.follow(why)
        self._registration.forget_master()
        self._take_id()
        # Whoever waits here for messages may have to look elsewhere.
        self._services.release_holds()

    def _take_id(self) -> None:
        """The id to register with: the configured one; who is configured as the master takes its successor's."""
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
        """Read the marks in the log, and look for a master as long as there is none."""
        await self._services.catch_up()
        # Members that elect their master are told who it is, and follow nobody while there is none.
        if not self._follower.state.connected and not self._options.failover:
            await self._look_for_master()

    async def _look_for_master(self) -> None:
        if self._standing.may_register:
            await self._registration.register_all()
        elif address := await self._registration.find_master():
            await self._consider_master(address, "")

    async def _consider_master(self, address: str, ha_address: str) -> None:
        """A name server names a master: follow it if it is one of ours."""
        try:
            proof = await self._claims.ask(address)
        except ErucaError as error:
            # It may be there in a moment, and a slave asks for proof again before it copies anything.
            log.info("the master %s that a name server names does not answer: %s", address, error)
            if not self._follower.state.connected and self._standing.may_register:
                self._master.take((address, ha_address))
            return
        if self._standing.state != SLAVE:
            return
        if proof is None:
            self._master.take((address, ha_address))
        elif not self._claims.may_follow(proof):
            text = "the master %s that a name server names is not followed: it is of another store"
            self._claims.say_once(address, text % address)
        elif proof.state.role == MASTER and proof.state.epoch >= self.epoch:
            if self._master.find()[0] != address:
                log.info("the master is %s", address)
            self._master.take((address, proof.state.ha_address or ha_address))
            if proof.kinship is Kinship.SAME:
                self._on_master_state(proof.state)

    def _on_master(self, address: str, ha_address: str) -> None:
        """A name server names another master."""
        if self._options.failover:
            return
        if self._standing.state == SLAVE and address != self._standing.address:
            self._spawn(self._consider_master(address, ha_address))

    def _on_master_state(self, state: ReplicationState) -> None:
        """The master says what it is."""
        if state.role != MASTER:
            return
        before = self._describe_registration()
        self._members.hear(state)
        if self._standing.state == SLAVE:
            self._take_id()
            if before != self._describe_registration():
                self._spawn(self._tell_nameservers())

    def _describe_registration(self) -> tuple[int, bool, int]:
        """What name servers should hear of at once when it changes."""
        return self._standing.broker_id, self._standing.may_register, self._members.master_epoch

    # -- others ------------------------------------------------------------------------------------------------------

    def _on_replaced(self, reason: str, epoch: int) -> None:
        """A name server says that this master was replaced, and in which epoch."""
        if self._standing.state == MASTER and not self._options.failover and not self._is_doubting:
            self._is_doubting = True
            self._spawn(self._answer_claim(reason, epoch))

    async def _answer_claim(self, reason: str, epoch: int) -> None:
        """Give way to a master that proves to be the successor. A name server's word alone changes nothing."""
        try:
            newer, outbid = await self._claims.weigh(reason, epoch, self.epoch)
            if self._standing.state != MASTER:
                return
            if newer is not None:
                self._hold_back(newer.reason)
                await self._step_down(newer)
            elif outbid:
                why = f"a name server says {reason!r}, and no member of this store knows of it"
                await self.become_master(outbid, why=why)
        finally:
            self._is_doubting = False

    async def _step_down(self, newer: NewerMaster) -> None:
        """Become a slave, if need be later: a disk that is full now must not leave this broker fenced for good."""
        while True:
            try:
                return await self.become_slave(newer.place, why=newer.reason, epoch=newer.epoch)
            except StoreError as error:
                log.error("this broker was replaced and cannot become a slave yet: %s", error)
            await asyncio.sleep(_STEP_DOWN_AGAIN_S)
            if self._standing.state != FENCED or self._turn.locked():
                return  # somebody else has changed it, or is about to

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a change of the role failed", exc_info=error)

    async def _tell_nameservers(self) -> None:
        if not self._is_open:
            return
        if self._standing.state == MASTER:
            # Even if they had all of it when this was a slave.
            self._services.renew_topics()
        if self._options.failover:
            # Other members wait for what this one does next, so it does not wait for name servers.
            self._spawn(self._registration.register_all())
        else:
            await self._registration.register_all()

    async def _save_role(self, role: str) -> None:
        """Remember a role that is another one than the configuration says."""
        is_configured = (role == SLAVE) == (self._options.role is BrokerRole.SLAVE)
        wanted = "" if is_configured and not self._store.lineage.record.role else role
        if wanted != self._store.lineage.record.role:
            await finish_in_thread(self._store.lineage.save_role, wanted)

    async def _give_up(self, epoch: int) -> None:
        """Be no master after a restart either, and follow none below an epoch from now on.

        In this order: a broker that knew of the epoch and not that it is replaced would start as the master of a later
        one, and push its successor aside.
        """
        await self._save_role(SLAVE)
        await finish_in_thread(self._store.lineage.see_epoch, epoch)
