"""Automatic failover of a broker: executes in etcd and in the broker what the state machine in `core.failover` decides.

A member's view of etcd is a copy of all keys of its broker name. It is read when a watch reports a change, after every
change of its own, and every second, because a watch can fall silent without an error. Unless TLS is used, nothing
between etcd and a broker protects the bytes, so a single response is not trusted: keys are accepted when two responses
in a row agree, the result of a call is what is read after it, and a lease is valid as long as two responses confirm.

Calls run concurrently and their results are passed to the state machine; role changes run one after the other, and one
that has not started when another is requested is skipped. Two things never wait: closing the gate (`may_acknowledge`),
which every acknowledgement passes, and fencing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from eruca._broker.options import BrokerOptions
from eruca._broker.replication.acknowledging import Gate
from eruca._broker.replication.copies import BrokerCopies
from eruca._broker.replication.failoverkeys import Keys
from eruca._broker.replication.roles import Roles
from eruca._broker.standing import Standing
from eruca._core.failover.machine import Failover
from eruca._core.failover.rules import Identity, Rules
from eruca._core.failover.view import (
    Acknowledge,
    Action,
    Call,
    ChangeSet,
    Claim,
    Claimed,
    ClaimRefused,
    Detach,
    Event,
    Failed,
    Fence,
    Follow,
    Forced,
    Grant,
    Keep,
    Lead,
    LeaseGranted,
    LeaseKept,
    MemberEntry,
    Phase,
    Publish,
    Published,
    Replaced,
    Require,
    Revoke,
    Revoked,
    RoleDone,
    RoleFailed,
    Seen,
    SetChanged,
    SetRefused,
    StateEntry,
    StepDown,
    Tell,
    Tick,
    View,
)
from eruca._ground.clock import Clock
from eruca._ground.repeating import Repeating
from eruca._net.etcd import EtcdClient, Snapshot, Transaction, open_etcd, split_endpoints
from eruca._net.etcdgateway import EtcdLogin
from eruca._wire.names import MASTER_ID
from eruca.errors import ConfigError, ConnectionLost, ErucaError, EtcdRefused, NetError

log = logging.getLogger(__name__)

_TICK_S = 0.05
_RESYNC_S = 1.0
_RETRY_S = 0.2
# Role changes run only when the state machine requests one.
_NEVER_S = 86_400.0
# How many times responses with all keys may differ before etcd counts as unreachable.
_READS_MAX = 5
# How long this member does not stand for election after an operator asked for another master.
_STEP_DOWN_S = 10.0
# How long an operator's request waits for its result.
_CHANGE_S = 10.0


async def open_client(options: BrokerOptions) -> EtcdClient:
    """Create the etcd client described by the options."""
    if options.failover != "etcd":
        raise ConfigError(f"failover={options.failover}: only `etcd` is supported")
    if options.ha_master:
        raise ConfigError("haMasterAddress and failover=etcd are mutually exclusive", hint="remove one of them")
    # A call that gets no response must leave time for others before the lease expires.
    timeout_s = max(0.25, min(1.0, options.failover_lease_s / 6))
    login = EtcdLogin(
        user=options.etcd_user,
        password=options.etcd_password,
        ca=options.etcd_ca,
        certificate=options.etcd_certificate,
        key=options.etcd_key,
    )
    return await open_etcd(split_endpoints(options.etcd_endpoints), login=login, timeout_s=timeout_s)


class FailoverDriver:
    """Takes part in electing the master of one broker name."""

    def __init__(
        self,
        options: BrokerOptions,
        standing: Standing,
        clock: Clock,
        roles: Roles,
        copies: BrokerCopies,
        client: EtcdClient,
        gate: Gate,
        *,
        rules: Rules | None = None,
    ) -> None:
        lease_s = options.failover_lease_s
        self._client = client
        self.gate = gate
        self._options = options
        self._clock = clock
        self._roles = roles
        self._standing = standing
        self._copies = copies
        self._keys = Keys(options.etcd_prefix, options.cluster, options.name)
        timeout_s = options.slave_timeout_ms / 1000
        self.rules = rules or Rules(cold_s=lease_s, slave_timeout_s=timeout_s, alone_s=lease_s + timeout_s)
        # None until the member joins, because only then its address is known.
        self._machine: Failover | None = None
        # The keys as last read from etcd.
        self._known = Snapshot(0, {})
        # After etcd went back, keys up to this revision are from the past.
        self._past = -1
        self._required: frozenset[int] = frozenset()
        self._wanted: Lead | Follow | Detach | None = None
        self._phase_changed = asyncio.Event()
        self._is_out_of_reach = False
        # Unreadable keys and their revisions.
        self._damaged: set[tuple[str, int]] = set()
        self._role_change = Repeating("changing the role", self._change_role, lambda: _NEVER_S, retry_s=_RETRY_S)
        self._services = (
            self._role_change,
            Repeating("watching etcd", self._watch, lambda: _RETRY_S, at_once=True),
            Repeating("reading etcd", self._resync, lambda: _RESYNC_S),
            Repeating("the clock of automatic failover", self._tick, lambda: _TICK_S, at_once=True, retry_s=_RETRY_S),
        )
        self._calls: set[asyncio.Task[None]] = set()

    # -- called by the broker ----------------------------------------------------------------------------------------

    @property
    def machine(self) -> Failover:
        """The state machine, once this member takes part."""
        if self._machine is None:
            raise ConfigError("this broker does not take part in the election yet", hint="try again in a moment")
        return self._machine

    @property
    def is_out_of_reach(self) -> bool:
        """Whether etcd did not answer the last time."""
        return self._is_out_of_reach

    @property
    def phase(self) -> Phase:
        """The current phase of this member."""
        return self.machine.phase

    @property
    def in_sync(self) -> frozenset[int]:
        """The in-sync set as known to this member."""
        view = self.machine.view
        return view.state.in_sync if view is not None and view.state is not None else frozenset()

    async def force(self, seconds: float = _CHANGE_S) -> None:
        """Become the master although others may have more; only if there is no master. Raises ConfigError otherwise."""
        view = self.machine.view
        if view is not None and view.master is not None:
            raise ConfigError(f"member {view.master.member} at {view.master.address} is the master; stop or demote it")
        self.tell(Forced(seconds))
        await self._wait_for(lambda phase: phase is Phase.LEADING, seconds)

    async def step_down(self, hold_s: float = _STEP_DOWN_S, seconds: float = _CHANGE_S) -> None:
        """Hand over to another member, not known in advance which. Raises ConfigError if there is none."""
        view, me = self.machine.view, self._options.broker_id
        if view is None or not (self.in_sync & view.members.keys()) - {me}:
            raise ConfigError("no other member has all acknowledged messages, so none can become the master")
        self.tell(StepDown(hold_s))
        await self._wait_for(lambda phase: phase not in (Phase.RISING, Phase.LEADING, Phase.FENCED), seconds)

    async def _wait_for(self, condition: Callable[[Phase], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not condition(self.phase):
                    self._phase_changed.clear()
                    await self._phase_changed.wait()
        except TimeoutError:
            raise ConfigError(
                f"this broker is {self.phase.value} after {seconds:g} s", hint="is etcd reachable?"
            ) from None

    # -- starting and stopping ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take part from now on. The broker is a slave without a master until the members have elected one."""
        me = self._options.broker_id
        identity = Identity(me, self._standing.address, is_founder=me == MASTER_ID)
        self._machine = Failover(identity, self.rules, required=self._copies.measure().required)
        for service in self._services:
            service.start()

    async def stop(self) -> None:
        """Give the mastership back, so that the others do not have to wait for the lease to expire."""
        was_master = self._machine is not None and self.phase in (Phase.RISING, Phase.LEADING)
        await self._fall_silent()
        if was_master:
            await self._roles.fence("the broker is stopping")
        if self._machine is not None and self._machine.lease is not None:
            try:
                await self._client.revoke_lease(self._machine.lease)
            except (NetError, EtcdRefused) as error:
                log.warning("the lease could not be revoked, other members wait for it to expire: %s", error)
        await self._client.close()

    async def _fall_silent(self) -> None:
        """Stop acknowledging and stop all activity."""
        self.gate.close()
        for service in self._services:
            await service.stop()
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # -- the state machine -------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Pass an event to the state machine and execute its actions; closing the gate happens before this returns."""
        before = self.phase
        for action in self.machine.handle(event, self._clock.monotonic()):
            self._do(action)
        if self.phase is not before:
            self._phase_changed.set()

    def _do(self, action: Action) -> None:
        match action:
            case Acknowledge(until):
                self.gate.open_until(until)
                self._copies.release()
            case Require(members):
                self._required = members
                self._copies.require(members)
            case Lead() | Follow() | Detach():
                self._wanted = action
                self._role_change.wake()
            case Fence(_, why):
                self._wanted = None
                self._spawn(self._roles.fence(why))
            case Tell(text, is_warning):
                log.log(logging.WARNING if is_warning else logging.INFO, "failover: %s", text)
            case _:
                self._spawn(self._call(action))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _tick(self) -> None:
        if self.phase is Phase.LEADING:
            self.tell(self._copies.measure())
        self.tell(Tick())

    # -- roles -------------------------------------------------------------------------------------------------------

    async def _change_role(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        try:
            await self._become(wanted)
        except ErucaError as error:
            self.tell(RoleFailed(wanted.ticket, str(error)))
        except Exception as error:
            log.exception("the role could not be changed")
            self.tell(RoleFailed(wanted.ticket, repr(error)))
        else:
            # A mastership counts its slaves anew; the required members are set again before anything is acknowledged.
            self._copies.require(self._required)
            self.tell(RoleDone(wanted.ticket, self._copies.find_log_end().position))

    async def _become(self, wanted: Lead | Follow | Detach) -> None:
        match wanted:
            case Lead(_, epoch):
                await self._roles.become_master(epoch, why="elected by the members")
            case Follow(_, master):
                place = (master.address, master.ha_address)
                why = f"member {master.member} is the master of epoch {master.epoch}"
                await self._roles.become_slave(place, why=why, epoch=master.epoch)
            case Detach():
                await self._roles.become_slave(None, why="there is no master")

    # -- etcd --------------------------------------------------------------------------------------------------------

    async def _call(self, call: Call) -> None:
        try:
            event = await self._make_call(call)
        except (NetError, EtcdRefused) as error:
            self._note_reach(error)
            event = Failed(call)
        except Exception:
            # Without a result the state machine would wait for this call forever.
            log.exception("a call to etcd failed")
            event = Failed(call)
        else:
            self._note_reach(None)
        self.tell(event)

    async def _make_call(self, call: Call) -> Event:
        client, keys = self._client, self._keys
        sent = self._clock.monotonic()
        match call:
            case Grant():
                lease = await client.grant_lease(self._options.failover_lease_s)
                seconds = min(lease.seconds, await client.keep_lease(lease.id))
                return LeaseGranted(lease.id, seconds, sent) if seconds > 0 else Failed(call)
            case Keep(number):
                return LeaseKept(number, await client.keep_lease(number), sent)
            case Revoke(number):
                await client.revoke_lease(number)
                return Revoked(number)
            case Publish():
                own = keys.member(self._options.broker_id)
                await self._commit(Transaction().expect(own, call.revision).put(own, self._describe(call), call.lease))
                return Published(self._known.revision)
            case Claim():
                return await self._claim(call)
            case ChangeSet(epoch, members, master_revision, state_revision):
                transaction = Transaction().expect(keys.master, master_revision).expect(keys.state, state_revision)
                value = keys.write_state(epoch, members)
                await self._commit(transaction.put(keys.state, value))
                revision = self._find(keys.state, value)
                if not revision:
                    return SetRefused(self._known.revision)
                log.info("failover: the in-sync set is now %s", sorted(members))
                return SetChanged(members, revision)

    def _describe(self, call: Publish) -> bytes:
        end = self._copies.find_log_end()
        log_end = (end.position, end.epoch, end.seen)
        entry = MemberEntry(*self._place, *log_end, call.round, call.is_cold, call.lease, 0, end.known, end.store)
        return self._keys.write_member(entry)

    async def _claim(self, call: Claim) -> Event:
        keys = self._keys
        transaction = Transaction().expect(keys.master, call.master_revision).expect(keys.state, call.state_revision)
        for member, revision in call.seen:
            transaction.expect(keys.member(member), revision)
        value = keys.write_master(call.epoch, *self._place, call.lease)
        transaction.put(keys.master, value, call.lease)
        transaction.put(keys.state, keys.write_state(call.epoch, call.in_sync))
        await self._commit(transaction)
        revision = self._find(keys.master, value)
        return Claimed(call.epoch, revision) if revision else ClaimRefused(self._known.revision)

    @property
    def _place(self) -> tuple[int, str, str]:
        """This member's id, service address and HA address."""
        return self._options.broker_id, self._standing.address, self._standing.ha_address

    async def _commit(self, transaction: Transaction) -> None:
        """Run a transaction, and read what etcd holds afterwards."""
        await self._client.commit(transaction)
        await self._read_all()

    def _find(self, key: str, value: bytes) -> int:
        """Return the revision of a key if it holds this value, otherwise 0."""
        item = self._known.items.get(key)
        return item.mod_revision if item is not None and item.value == value else 0

    async def _watch(self) -> None:
        """Read the keys when they change."""
        try:
            await self._read_all()
            async for _, changes in self._client.watch(self._keys.prefix, self._known.revision + 1):
                if changes:
                    await self._read_all()
        except (NetError, EtcdRefused) as error:
            self._note_reach(error)

    async def _resync(self) -> None:
        """Read the keys periodically, independently of the watch."""
        try:
            await self._read_all()
        except (NetError, EtcdRefused) as error:
            self._note_reach(error)

    async def _read_all(self) -> None:
        known = self._known.revision
        snapshot = await self._read_twice(known)
        if snapshot.revision < known:
            if self._known.revision == known:
                self._begin_anew(snapshot)
        elif snapshot.revision >= self._known.revision:
            self._known = snapshot
            self._show()

    def _begin_anew(self, snapshot: Snapshot) -> None:
        """Handle a revision that went back, which means this is not the same etcd data. Its past cannot be trusted."""
        log.error(
            "failover: etcd went back from revision %d to %d: its data was lost or restored",
            *(self._known.revision, snapshot.revision),
        )
        if self._keys.state in snapshot.items:
            log.error(
                "failover: etcd was restored from a backup; members that had all messages then may lack some now:"
                " delete the keys (etcdctl del --prefix %s) and leave the brokers running; they recover automatically",
                self._keys.prefix,
            )
        self._known, self._past = snapshot, snapshot.revision
        self.tell(Replaced(self._read_view()))

    async def _read_twice(self, known: int) -> Snapshot:
        """Read all keys until two responses in a row agree. Other keys of etcd may change between the two."""
        one = await self._client.get_prefix(self._keys.prefix)
        if one == self._known:
            return one
        for _ in range(_READS_MAX):
            two = await self._client.get_prefix(self._keys.prefix)
            is_later = one.revision <= two.revision and (one.revision < known) == (two.revision < known)
            if is_later and one.items == two.items:
                return one
            one = two
        raise ConnectionLost("etcd returns a different response every time: are responses corrupted in transit?")

    def _show(self) -> None:
        view = self._read_view()
        self._copies.meet(entry.address for entry in view.members.values() if entry.is_readable)
        damaged = self._keys.find_damaged(view)
        for key, _ in sorted(damaged - self._damaged):
            log.warning("failover: the key %s does not hold a valid value; its writer will repair it", key)
        self._damaged = damaged
        self.tell(Seen(view))

    def _read_view(self) -> View:
        """Read the view from the keys, ignoring a state restored from a backup: its in-sync set may be wrong."""
        view = self._keys.read_view(self._known)
        if view.state is not None and view.state.revision <= self._past:
            past = StateEntry(0, frozenset(), view.state.revision, view.state.version, is_damaged=True)
            return replace(view, state=past)
        return view

    def _note_reach(self, error: ErucaError | None) -> None:
        """Log once that etcd is unreachable, and once that it is back."""
        if error is not None and not self._is_out_of_reach:
            log.warning("failover: %s", error)
        elif error is None and self._is_out_of_reach:
            log.info("failover: etcd responds again")
        self._is_out_of_reach = error is not None
