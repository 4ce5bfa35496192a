"""Automatic failover of a broker: does in etcd and in the broker what the machine of `core.failover` decides.

The member's view of etcd is a mirror of the keys of its broker name: read whole, kept current by a watch, and read
again every second, because a watch can fall silent without a word. Calls run beside each other and their answers are
told to the machine; changes of the role run one after the other, and one that was not begun when another is wanted is
left out. Two things never wait: closing the gate (`may_acknowledge`), which every acknowledgement passes, and a fence.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from eruca.broker.failoverkeys import Keys, Mirror, encode_master, encode_member, encode_state
from eruca.broker.options import BrokerOptions
from eruca.clock import Clock
from eruca.core.failover.machine import Failover, Identity, Phase, Rules
from eruca.core.failover.view import (
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
    Progress,
    Publish,
    Published,
    Require,
    Revoke,
    Revoked,
    RoleDone,
    RoleFailed,
    Seen,
    SetChanged,
    SetRefused,
    StepDown,
    Tell,
    Tick,
)
from eruca.errors import BAD_JSON, ConfigError, ErucaError, EtcdRefused, NetError
from eruca.net.etcd import EtcdClient, Transaction, open_etcd, split_endpoints

log = logging.getLogger(__name__)

_TICK_S = 0.05
_RESYNC_S = 1.0
_RETRY_S = 0.2
# How long an operator's wish for another master keeps this one from standing again.
_STEP_DOWN_S = 10.0
# How long an operator waits for what was asked.
_CHANGE_S = 10.0


# --- the broker ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a member's log, the epoch that wrote there, and the highest epoch it has heard of."""

    position: int
    epoch: int
    seen: int


class RoleSwitch(Protocol):
    """What changes the role of a broker."""

    async def become_master(self, epoch: int, *, why: str) -> None:
        """Take messages as the master of an epoch."""

    async def become_slave(self, master: tuple[str, str] | None, *, why: str, epoch: int = 0) -> None:
        """Follow a master; None: nobody. When it is done the log stands still and nothing is reported any more."""

    async def fence(self, why: str) -> None:
        """Take no more messages, at once."""


class Standing(Protocol):
    """What is known of a broker's log and its slaves."""

    def find_log_end(self) -> LogEnd:
        """Where the log ends."""

    def measure(self) -> Progress:
        """How far the slaves are."""

    def require(self, members: frozenset[int]) -> None:
        """Acknowledge nothing that one of these lacks."""

    def release(self) -> None:
        """Acknowledge what may be acknowledged now."""


async def open_client(options: BrokerOptions) -> EtcdClient:
    """Make the client of etcd that the options describe."""
    if options.failover != "etcd":
        raise ConfigError(f"failover={options.failover}: only `etcd` is known")
    if options.ha_master:
        raise ConfigError("haMasterAddress names a master, and failover=etcd elects one", hint="leave one of them out")
    # A call that is not answered must leave time for others before the lease is over.
    timeout_s = max(0.25, min(1.0, options.failover_lease_s / 6))
    return await open_etcd(split_endpoints(options.etcd_endpoints), timeout_s=timeout_s)


class FailoverDriver:
    """Takes part in choosing the master of one broker name."""

    def __init__(
        self,
        options: BrokerOptions,
        clock: Clock,
        roles: RoleSwitch,
        standing: Standing,
        client: EtcdClient,
        *,
        rules: Rules | None = None,
    ) -> None:
        lease_s = options.failover_lease_s
        self._client = client
        self._options = options
        self._clock = clock
        self._roles = roles
        self._standing = standing
        self._keys = Keys(options.etcd_prefix, options.cluster, options.name)
        timeout_s = options.slave_timeout_ms / 1000
        self.rules = rules or Rules(cold_s=lease_s, slave_timeout_s=timeout_s, alone_s=lease_s + timeout_s)
        identity = Identity(options.configured_id, options.address, is_founder=options.configured_id == 0)
        self.machine = Failover(identity, self.rules, required=self._standing.measure().required)
        self._mirror = Mirror()
        self._until = -math.inf
        self._required: frozenset[int] = frozenset()
        self._wanted: Lead | Follow | Detach | None = None
        self._role_wanted = asyncio.Event()
        self._resync_wanted = asyncio.Event()
        self._phase_changed = asyncio.Event()
        self._is_out_of_reach = False
        # What was read last could not be understood.
        self._is_view_bad = False
        # Keys of members that could not be read, and their revisions.
        self._unreadable: set[tuple[int, int]] = set()
        self._services: list[asyncio.Task[None]] = []
        self._calls: set[asyncio.Task[None]] = set()

    # -- what the broker asks ----------------------------------------------------------------------------------------

    def may_acknowledge(self) -> bool:
        """Is this broker the master at this very moment, as far as its own clock can tell?"""
        return self._clock.monotonic() < self._until

    @property
    def phase(self) -> Phase:
        """What this member is doing."""
        return self.machine.phase

    @property
    def in_sync(self) -> frozenset[int]:
        """The in-sync set, as far as this member knows."""
        view = self.machine.view
        return view.state.in_sync if view is not None and view.state is not None else frozenset()

    async def force(self, seconds: float = _CHANGE_S) -> None:
        """Become the master although others may have more; only where there is none. Raises ConfigError otherwise."""
        view = self.machine.view
        if view is not None and view.master is not None:
            raise ConfigError(f"member {view.master.member} at {view.master.address} is the master; stop or demote it")
        self.tell(Forced(seconds))
        await self._wait_for(lambda phase: phase is Phase.LEADING, seconds)

    async def step_down(self, hold_s: float = _STEP_DOWN_S, seconds: float = _CHANGE_S) -> None:
        """Let another member be the master; it is not known yet which. Raises ConfigError when there is no other."""
        view, me = self.machine.view, self._options.configured_id
        if view is None or not (self.in_sync & view.members.keys()) - {me}:
            raise ConfigError("no other member has everything that was acknowledged, so none can be the master")
        self.tell(StepDown(hold_s))
        await self._wait_for(lambda phase: phase not in (Phase.RISING, Phase.LEADING, Phase.FENCED), seconds)

    async def _wait_for(self, condition: Callable[[Phase], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not condition(self.phase):
                    self._phase_changed.clear()
                    await self._phase_changed.wait()
        except TimeoutError:
            raise ConfigError(f"this broker is {self.phase.value} after {seconds:g} s", hint="is etcd there?") from None

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to take part. The broker is a slave without a master until the members have chosen one."""
        loop = asyncio.get_running_loop()
        for work in (self._change_roles, self._watch, self._resync, self._tick):
            self._services.append(loop.create_task(_keep_running(work)))

    async def stop(self) -> None:
        """Give the mastership back, so that the others need not wait for the lease to end."""
        was_master = self.phase in (Phase.RISING, Phase.LEADING)
        self._until = -math.inf
        for task in [*self._services, *self._calls]:
            task.cancel()
        await asyncio.gather(*self._services, *self._calls, return_exceptions=True)
        self._services.clear()
        if was_master:
            await self._roles.fence("the broker stops")
        if self.machine.lease is not None:
            try:
                await self._client.revoke_lease(self.machine.lease)
            except (NetError, EtcdRefused) as error:
                log.warning("the lease was not given back, others wait for its end: %s", error)
        await self._client.close()

    # -- the machine -------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Tell the machine what happened, and do what it says; what closes the gate is done before this returns."""
        before = self.phase
        for action in self.machine.handle(event, self._clock.monotonic()):
            self._do(action)
        if self.phase is not before:
            self._phase_changed.set()

    def _do(self, action: Action) -> None:
        match action:
            case Acknowledge(until):
                self._until = until
                self._standing.release()
            case Require(members):
                self._required = members
                self._standing.require(members)
            case Lead() | Follow() | Detach():
                self._wanted = action
                self._role_wanted.set()
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
            self.tell(self._standing.measure())
        self.tell(Tick())
        await asyncio.sleep(_TICK_S)

    # -- roles -------------------------------------------------------------------------------------------------------

    async def _change_roles(self) -> None:
        await self._role_wanted.wait()
        self._role_wanted.clear()
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
            # A mastership counts its slaves anew; whom it needs is said again before anything is acknowledged.
            self._standing.require(self._required)
            self.tell(RoleDone(wanted.ticket, self._standing.find_log_end().position))

    async def _become(self, wanted: Lead | Follow | Detach) -> None:
        match wanted:
            case Lead(_, epoch):
                await self._roles.become_master(epoch, why="the members elected it")
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
            # Without an answer the machine would wait for this call for ever.
            log.exception("a call to etcd failed")
            event = Failed(call)
        else:
            self._note_reach(None)
        if isinstance(event, ClaimRefused | SetRefused | Published):
            # What etcd holds is another thing than was thought, or will be in a moment.
            self._resync_wanted.set()
        self.tell(event)

    async def _make_call(self, call: Call) -> Event:
        client, keys = self._client, self._keys
        sent = self._clock.monotonic()
        match call:
            case Grant():
                lease = await client.grant_lease(self._options.failover_lease_s)
                return LeaseGranted(lease.id, lease.seconds, sent)
            case Keep(number):
                return LeaseKept(number, await client.keep_lease(number), sent)
            case Revoke(number):
                await client.revoke_lease(number)
                return Revoked(number)
            case Publish():
                own = keys.member(self._options.configured_id)
                result = await client.commit(
                    Transaction().expect(own, call.revision).put(own, self._describe(call), call.lease)
                )
                return Published(result.revision)
            case Claim():
                return await self._claim(call)
            case ChangeSet(epoch, members, master_revision, state_revision):
                transaction = Transaction().expect(keys.master, master_revision).expect(keys.state, state_revision)
                result = await client.commit(transaction.put(keys.state, encode_state(epoch, members)))
                if not result.succeeded:
                    return SetRefused(result.revision)
                log.info("failover: the in-sync set is %s", sorted(members))
                return SetChanged(members, result.revision)

    def _describe(self, call: Publish) -> bytes:
        end, options = self._standing.find_log_end(), self._options
        place = (options.configured_id, options.address, options.ha_address)
        log_end = (end.position, end.epoch, end.seen)
        return encode_member(MemberEntry(*place, *log_end, call.round, call.is_cold, call.lease, 0))

    async def _claim(self, call: Claim) -> Event:
        options, keys = self._options, self._keys
        transaction = Transaction().expect(keys.master, 0).expect(keys.state, call.state_revision)
        for member, revision in call.seen:
            transaction.expect(keys.member(member), revision)
        place = (options.configured_id, options.address, options.ha_address)
        transaction.put(keys.master, encode_master(call.epoch, *place), call.lease)
        transaction.put(keys.state, encode_state(call.epoch, call.in_sync))
        result = await self._client.commit(transaction)
        return Claimed(call.epoch, result.revision) if result.succeeded else ClaimRefused(result.revision)

    async def _watch(self) -> None:
        """Follow the keys as they change."""
        try:
            await self._read_all()
            async for _, changes in self._client.watch(self._keys.prefix, self._mirror.revision + 1):
                if self._mirror.apply(changes):
                    self._show()
        except (NetError, EtcdRefused) as error:
            self._note_reach(error)
        await asyncio.sleep(_RETRY_S)

    async def _resync(self) -> None:
        """Read the keys again now and then, whatever the watch says."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESYNC_S):
                await self._resync_wanted.wait()
        self._resync_wanted.clear()
        try:
            await self._read_all()
        except (NetError, EtcdRefused) as error:
            self._note_reach(error)

    async def _read_all(self) -> None:
        known = self._mirror.revision
        snapshot = await self._client.get_prefix(self._keys.prefix)
        if snapshot.revision < known:
            # Reads never go back, so this is another etcd than before. What it says of the past cannot be believed.
            log.error(
                "failover: etcd went back from revision %d to %d (restored from a backup?): restart the brokers of %s",
                *(known, snapshot.revision, self._options.name),
            )
        elif self._mirror.reset(snapshot):
            self._show()

    def _show(self) -> None:
        try:
            view = self._keys.read_view(self._mirror.revision, self._mirror.items)
        except BAD_JSON as error:
            # Once it may be the answer that was damaged on its way; what is so again is in etcd.
            level = logging.ERROR if self._is_view_bad else logging.WARNING
            log.log(level, "failover: a key under %s is not one of ours: %s", self._keys.prefix, error)
            self._is_view_bad = True
            return
        self._is_view_bad = False
        unreadable = {(entry.member, entry.revision) for entry in view.members.values() if not entry.is_readable}
        for member, _ in sorted(unreadable - self._unreadable):
            log.warning(
                "failover: the key %s is not one of ours; that member writes it again", self._keys.member(member)
            )
        self._unreadable = unreadable
        self.tell(Seen(view))

    def _note_reach(self, error: ErucaError | None) -> None:
        """Say once that etcd is out of reach, and once that it is back."""
        if error is not None and not self._is_out_of_reach:
            log.warning("failover: %s", error)
        elif error is None and self._is_out_of_reach:
            log.info("failover: etcd answers again")
        self._is_out_of_reach = error is not None


async def _keep_running(work: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again; a mistake of ours must not leave the members without a master for ever."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("automatic failover met a mistake and goes on")
            await asyncio.sleep(_RETRY_S)
