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

from eruca.broker.hold import Holds
from eruca.broker.options import BrokerRole
from eruca.broker.parts import Parts
from eruca.broker.registration import Registration
from eruca.broker.replication.claims import Claims
from eruca.broker.replication.members import KnownMembers
from eruca.broker.replication.metadata import Metadata
from eruca.broker.replication.primary import HA_PORT_ABOVE, ReplicationServer
from eruca.broker.replication.replica import Follower
from eruca.broker.replication.returning import NewerMaster
from eruca.broker.replication.threads import finish_in_thread
from eruca.broker.schedule import Schedule
from eruca.broker.timing import Timing
from eruca.broker.transactions import TransactionHandlers
from eruca.core.replication.epochs import is_epoch, last_epoch
from eruca.core.replication.kinship import Kinship
from eruca.core.replication.numbering import count_start
from eruca.digits import read_digits
from eruca.errors import ErucaError, StoreError
from eruca.limits import EPOCH_MAX
from eruca.net.caller import Caller
from eruca.wire.bodies import ReplicationState
from eruca.wire.names import FENCED, FORBIDDEN_TO_SEND, MASTER, MASTER_ID, SLAVE

log = logging.getLogger(__name__)

_NO_MASTER = ("", "")
# A master that was replaced and could not become a slave tries again after so long.
_STEP_DOWN_AGAIN_S = 5.0


@dataclass(slots=True)
class Services:
    """What works by itself on a master, and what holds pulls."""

    schedule: Schedule
    timing: Timing
    transactions: TransactionHandlers
    holds: Holds


class Roles:
    """The role of one broker."""

    def __init__(
        self, parts: Parts, caller: Caller, registration: Registration, services: Services, members: KnownMembers
    ) -> None:
        self._parts = parts
        self._caller = caller
        self._registration = registration
        self._services = services
        self._configured_role = parts.options.role
        self.name = FENCED
        # Why it is fenced.
        self.reason = "the broker starts"
        self.members = members
        self.claims = Claims(parts, caller, registration, members)
        self.server = ReplicationServer(parts)
        self.follower = Follower(parts, caller, self.find_master)
        self.metadata = Metadata(parts, caller, services.schedule, services.timing, self.find_master)
        self.metadata.on_state = self._on_master_state
        self.metadata.on_java = members.hear_java
        registration.on_master = self._on_master
        registration.on_replaced = self._on_replaced
        # Whom a slave follows: its service address and that of its log.
        self._master = _NO_MASTER
        # One change at a time; a fence does not wait for its turn.
        self._turn = asyncio.Lock()
        self._fences = 0
        self._is_open = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def epoch(self) -> int:
        """The mastership that is now, or on a slave the highest that was heard of."""
        record = self._parts.store.replication
        return last_epoch(record.epochs) if self.name == MASTER else record.seen_epoch

    # -- the start ---------------------------------------------------------------------------------------------------

    async def decide(self) -> None:
        """Become what configuration and store say; comes before the ports are open."""
        options, record = self._parts.options, self._parts.store.replication
        self._hold_back(self.reason)
        role = record.role
        if role:
            counts = "now the members elect their master" if options.failover else "that counts, and not broker.conf"
            log.warning("this broker was %s last, as %s says: %s", role, self._parts.store.paths.replication, counts)
        if options.failover:
            await self._prepare_slave("the members elect their master")
        elif role == SLAVE or (not role and options.is_slave):
            await self._prepare_slave("it is a slave")
        elif (newer := await self._find_newer_master()) is not None:
            await self._give_up(newer.epoch)
            self._master = newer.place or _NO_MASTER
            await self._prepare_slave(newer.reason)
        else:
            await self._lead(count_start(self.epoch, record.led_epoch, options.configured_id), self._fences)

    async def open(self) -> None:
        """Listen for slaves, or begin to follow; the ports are open by now."""
        await self.server.start()
        self._is_open = True
        if self.name == SLAVE:
            self._follow()

    async def stop(self) -> None:
        """End everything that a role began."""
        async with self._turn:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._stop_following()
            await self._stop_services()
            await self.server.stop()
        options = self._parts.options
        # The same options may start a broker again.
        options.role, options.broker_id = self._configured_role, options.configured_id

    async def _find_newer_master(self) -> NewerMaster | None:
        self._parts.options.role = self._choose_master_role()
        return (await self.claims.survey(starts=True)).newer

    # -- changes -----------------------------------------------------------------------------------------------------

    async def become_master(self, epoch: int, *, why: str) -> None:
        """Take messages from now on, as the master of a new epoch. Raises StoreError when that one cannot begin."""
        fences = self._fences
        async with self._turn:
            record = self._parts.store.replication
            if not is_epoch(epoch):
                raise StoreError(f"epoch {epoch} cannot begin: an epoch is a number up to {EPOCH_MAX}")
            if epoch <= last_epoch(record.epochs) or epoch < record.seen_epoch:
                if self.name == MASTER and epoch == self.epoch:
                    return
                raise StoreError(f"epoch {epoch} cannot begin: epoch {record.seen_epoch} was seen")
            if self.name == MASTER:
                self._hold_back(why)
                fences = self._fences
            log.warning("this broker becomes the master of %s, epoch %d: %s", self._parts.options.name, epoch, why)
            if self.follower.state.connected:
                await self.metadata.copy_last()
            try:
                await self._stop_following()
                await self._stop_services()
                self.server.drop_links("a mastership begins")
                # What is missing of the log at its end may have been consumed already.
                if moved := self._parts.offsets.bound(self._find_end):
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
            await self._stop_services()
            self.server.drop_links("this broker is a slave now")
            self._master = master or _NO_MASTER
            await self._prepare_slave(why)
            if self._is_open:
                self._follow()
                await self._tell_nameservers()

    async def fence(self, why: str, *, epoch: int = 0) -> None:
        """Take no more messages and acknowledge none, at once; slaves still get what is there."""
        self._hold_back(why)
        # Slaves get what is in the file, and what was taken may still be in a buffer.
        self._parts.store.commit()
        if epoch > self.epoch:
            await self._give_up(epoch)

    def _hold_back(self, why: str) -> None:
        """Let nothing be stored or acknowledged any more. In one step: nothing can come in between."""
        parts = self._parts
        self._fences += 1
        parts.writable = False
        parts.store.fence(f"this broker is not the master: {why}")
        parts.replication.abandon()
        # It does not register: name servers that know no epochs would push its successor aside.
        self._registration.is_paused = True
        if self.name == MASTER:
            log.warning("this broker takes no more messages: %s", why)
        self.name, self.reason = FENCED, why

    # -- being the master --------------------------------------------------------------------------------------------

    async def _lead(self, epoch: int, fences: int) -> None:
        """Begin an epoch and open for messages, unless somebody has fenced this broker meanwhile."""
        parts, services, options = self._parts, self._services, self._parts.options
        await parts.once.catch_up(parts.store.commitlog.readable_end)
        await finish_in_thread(parts.store.begin_epoch, epoch)
        await self._save_role(MASTER)
        if fences != self._fences:
            raise StoreError(f"this broker did not become the master: {self.reason}")
        # Until it is one: a registration in between would have the id of a master without its epoch.
        self._registration.is_paused = True
        options.role, options.broker_id = self._choose_master_role(), MASTER_ID
        parts.replication.begin()
        parts.once.lead()
        self._adopt_topics()
        # From here on its own services may store, and they look where their queues end before anybody else does.
        parts.store.fence("")
        await services.schedule.start()
        await services.timing.start()
        services.transactions.start()
        if fences != self._fences:
            await self._stop_services()
            raise StoreError(f"this broker did not become the master: {self.reason}")
        self.name, self.reason, self.claims.claimed_epoch = MASTER, "", 0
        self.members.lead(epoch)
        self._registration.store_id = parts.store.replication.store_id
        self._registration.epoch, self._registration.is_paused = epoch, False
        parts.writable = True

    def _choose_master_role(self) -> BrokerRole:
        """What kind of master: as configured; a slave becomes what its master was."""
        if self._configured_role is not BrokerRole.SLAVE:
            return self._configured_role
        # Nobody heard of a master: members that elect one do so in order to lose nothing.
        if self.members.mode is None and not self._parts.options.failover:
            log.warning("nobody said whether the last master waited for slaves: this one does not (ASYNC_MASTER)")
        is_sync, _ = self.members.mode or (bool(self._parts.options.failover), 0)
        return BrokerRole.SYNC_MASTER if is_sync else BrokerRole.ASYNC_MASTER

    def _adopt_topics(self) -> None:
        """Know every topic that has messages: the last ones may have come without their settings."""
        queues: dict[str, int] = {}
        for queue in self._parts.store.queues:
            # Those that were deleted on the master have older messages only.
            if queue.topic not in FORBIDDEN_TO_SEND and queue.end_position > self.metadata.topics_position:
                queues[queue.topic] = max(queues.get(queue.topic, 0), queue.queue_id + 1)
        for topic, count in queues.items():
            self._parts.topics.adopt(topic, count)

    def _find_end(self, topic: str, queue_id: int) -> int:
        queue = self._parts.store.queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    async def _stop_services(self) -> None:
        await self._services.schedule.stop()
        await self._services.timing.stop()
        await self._services.transactions.stop()

    # -- being a slave -----------------------------------------------------------------------------------------------

    async def _prepare_slave(self, why: str) -> None:
        """Be a slave whose master is not there yet."""
        parts, options = self._parts, self._parts.options
        options.role = BrokerRole.SLAVE
        parts.replication.reads.follow_options()
        await parts.once.follow()
        await self._services.schedule.start()
        await self._services.timing.forget()
        self.name, self.reason = SLAVE, why
        self._registration.epoch = None
        self._registration.master_address = self._registration.master_ha_address = ""
        self._take_id()
        # Whoever waits here for messages may have to look elsewhere.
        self._services.holds.release_all()

    def _take_id(self) -> None:
        """The id to register with: the configured one; who is configured as the master takes its successor's."""
        options = self._parts.options
        wanted = options.configured_id
        if wanted == MASTER_ID:
            wanted = self.members.master_configured_id
        # Neither a master's id, nor one that nobody knows.
        self._registration.is_paused = wanted <= MASTER_ID
        if wanted > MASTER_ID:
            options.broker_id = wanted

    def _follow(self) -> None:
        self.follower.start()
        self.metadata.start()
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._watch_master())

    async def _stop_following(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        await self.follower.stop()
        await self.metadata.stop()

    async def _watch_master(self) -> None:
        """Read the marks in the log, and look for a master as long as there is none."""
        parts = self._parts
        while True:
            await asyncio.sleep(parts.options.ha_reconnect_ms / 1000)
            try:
                await parts.once.catch_up(parts.store.commitlog.readable_end)
                # Members that elect their master are told who it is, and follow nobody while there is none.
                if not self.follower.state.connected and not parts.options.failover:
                    await self._look_for_master()
            except ErucaError as error:
                log.warning("the master could not be looked for: %s", error)
            except Exception:
                # A mistake of ours must not end the watch for good.
                log.exception("the master could not be looked for")

    async def _look_for_master(self) -> None:
        if not self._registration.is_paused:
            await self._registration.register_all()
        elif address := await self._registration.find_master():
            await self._consider_master(address, "")

    async def _consider_master(self, address: str, ha_address: str) -> None:
        """A name server names a master: follow it if it is one of ours."""
        try:
            proof = await self.claims.ask(address)
        except ErucaError as error:
            # It may be there in a moment, and a slave asks for proof again before it copies anything.
            log.info("the master %s that a name server names does not answer: %s", address, error)
            if not self.follower.state.connected and not self._registration.is_paused:
                self._master = (address, ha_address)
            return
        if self.name != SLAVE:
            return
        if proof is None:
            self._master = (address, ha_address)
        elif not self.claims.may_follow(proof):
            text = "the master %s that a name server names is not followed: it is of another store"
            self.claims.say_once(address, text % address)
        elif proof.state.role == MASTER and proof.state.epoch >= self.epoch:
            if self._master[0] != address:
                log.info("the master is %s", address)
            self._master = (address, proof.state.ha_address or ha_address)
            if proof.kinship is Kinship.SAME:
                self._on_master_state(proof.state)

    def find_master(self) -> tuple[str, str]:
        """Whom this slave follows: the address of its service and that of its log; empty when nobody knows."""
        options = self._parts.options
        address, ha_address = self._master
        ha_address = options.ha_master or ha_address
        # The ports are neighbours.
        address = address or _shift_port(ha_address, -HA_PORT_ABOVE)
        ha_address = ha_address or _shift_port(address, HA_PORT_ABOVE)
        return (address, ha_address) if address != options.address else _NO_MASTER

    def _on_master(self, address: str, ha_address: str) -> None:
        """A name server names another master."""
        if self._parts.options.failover:
            return
        if self.name == SLAVE and address != self._parts.options.address:
            self._spawn(self._consider_master(address, ha_address))

    def _on_master_state(self, state: ReplicationState) -> None:
        """The master says what it is."""
        if state.role != MASTER:
            return
        before = self._describe_registration()
        self.members.hear(state)
        if self.name == SLAVE:
            self._take_id()
            if before != self._describe_registration():
                self._spawn(self._tell_nameservers())

    def _describe_registration(self) -> tuple[int, bool, int]:
        """What name servers should hear of at once when it changes."""
        return self._parts.options.broker_id, self._registration.is_paused, self.members.master_epoch

    # -- others ------------------------------------------------------------------------------------------------------

    def _on_replaced(self, reason: str, epoch: int) -> None:
        """A name server says that this master was replaced, and in which epoch."""
        if self.name == MASTER and not self._parts.options.failover and not self.claims.is_doubting:
            self.claims.is_doubting = True
            self._spawn(self._answer_claim(reason, epoch))

    async def _answer_claim(self, reason: str, epoch: int) -> None:
        """Give way to a master that proves to be the successor. A name server's word alone changes nothing."""
        try:
            newer, outbid = await self.claims.weigh(reason, epoch, self.epoch)
            if self.name != MASTER:
                return
            if newer is not None:
                self._hold_back(newer.reason)
                await self._step_down(newer)
            elif outbid:
                why = f"a name server says {reason!r}, and no member of this store knows of it"
                await self.become_master(outbid, why=why)
        finally:
            self.claims.is_doubting = False

    async def _step_down(self, newer: NewerMaster) -> None:
        """Become a slave, if need be later: a disk that is full now must not leave this broker fenced for good."""
        while True:
            try:
                return await self.become_slave(newer.place, why=newer.reason, epoch=newer.epoch)
            except StoreError as error:
                log.error("this broker was replaced and cannot become a slave yet: %s", error)
            await asyncio.sleep(_STEP_DOWN_AGAIN_S)
            if self.name != FENCED or self._turn.locked():
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
        if self.name == MASTER:
            # Even if they had all of it when this was a slave.
            self._parts.topics.renew()
        if self._parts.options.failover:
            # Other members wait for what this one does next, so it does not wait for name servers.
            self._spawn(self._registration.register_all())
        else:
            await self._registration.register_all()

    async def _save_role(self, role: str) -> None:
        """Remember a role that is another one than the configuration says."""
        is_configured = (role == SLAVE) == (self._configured_role is BrokerRole.SLAVE)
        wanted = "" if is_configured and not self._parts.store.replication.role else role
        if wanted != self._parts.store.replication.role:
            await finish_in_thread(self._parts.store.save_role, wanted)

    async def _give_up(self, epoch: int) -> None:
        """Be no master after a restart either, and follow none below an epoch from now on.

        In this order: a broker that knew of the epoch and not that it is replaced would start as the master of a later
        one, and push its successor aside.
        """
        await self._save_role(SLAVE)
        await finish_in_thread(self._parts.store.see_epoch, epoch)


def _shift_port(address: str, by: int) -> str:
    """The address with another port; empty when there is none to begin with."""
    host, _, port = address.rpartition(":")
    number = read_digits(port)
    return "" if number is None else f"{host}:{number + by}"
