"""Changing roles: making another member the master of its broker name, or having a master step down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.members import (
    JAVA,
    Member,
    find_member,
    list_members,
    read_state,
)
from eruca._admin.promotion import (
    Objection,
    Situation,
    find_highest_epoch,
    find_objections,
    find_successor,
)
from eruca._core.replication.numbering import count_promotion
from eruca._wire.bodies import ReplicationState
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import ChangeRoleHeader
from eruca._wire.names import FENCED, MASTER, SLAVE
from eruca.errors import ConfigError, ErucaError, NetError

_POLL_S = 0.1
# A new master registers at once.
_REGISTERED_S = 3.0
# A change of role reads the end of the log again and registers with the name servers, which may take a while.
_CHANGE_MS = 60_000
# The master stops accepting messages once a slave is this close to its end: the rest takes tenths of a second.
_NEAR_BYTES = 4 * 1024 * 1024

Tell = Callable[[str], None]


class Promotion(msgspec.Struct, kw_only=True):
    """What a promotion or demotion did, or with `dry_run` would do."""

    broker: str
    before: str
    master: str
    epoch: int
    done: bool = False
    # It is the master already: there is nothing to do.
    unchanged: bool = False
    objections: list[str] = []
    steps: list[str] = []
    warnings: list[str] = []


class RoleChange:
    """One change of roles. Its steps are in an order in which nothing is lost if it is interrupted."""

    def __init__(
        self, connection: Connection, force: bool, count: int | None, wait_s: float, dry_run: bool, tell: Tell | None
    ) -> None:
        self._connection = connection
        self._force = force
        self._count = count
        self._wait_s = wait_s
        self._dry_run = dry_run
        self._tell = tell
        self._report = Promotion(broker="", before="", master="", epoch=0)

    async def promote(self, target: Member) -> Promotion:
        chosen = _require_state(target)
        situation = await _survey(self._connection, target, self._count)
        master = situation.master
        if _is_elected(situation):
            return await self._force_election(situation, master, target.address)
        report = self._report
        report.broker, report.master = target.broker, target.address
        report.before = master.address if master is not None else _name_lost_master(situation)
        is_master = master is not None and master.address == target.address and master.role == MASTER
        if master is not None and is_master and master.writable and master.claimed_epoch <= master.epoch:
            report.epoch, report.done, report.unchanged = master.epoch, not self._dry_run, True
            self._note(f"{target.address} is already the master, epoch {master.epoch}")
            return report
        objections = find_objections(situation, target.address)
        report.objections = [objection.reason for objection in objections]
        highest = max(find_highest_epoch(situation.states), chosen.claimed_epoch)
        report.epoch = count_promotion(highest, chosen.configured_id)
        if self._dry_run:
            return report
        self._refuse(objections)
        if master is not None and master.address != target.address:
            await self._hand_over(situation, master, chosen)
        else:
            await self._take_over(situation, chosen)
        await self._see_registered(target)
        report.done = True
        return report

    async def demote(self, target: Member) -> Promotion:
        master = _require_state(target)
        if master.role == SLAVE:
            raise ConfigError(f"{target.address} is already a slave", hint="eruca cluster list shows the master")
        situation = await _survey(self._connection, target, self._count)
        if _is_elected(situation):
            return await self._resign(situation, master)
        heir = find_successor(situation, master)
        if heir is None:
            raise ConfigError(
                f"no slave copies from {target.address}, so none can take over",
                hint="start one, or add --no-successor: then no broker accepts messages until one is promoted",
            )
        return await self.promote(await find_member(self._connection, heir.address))

    async def retire(self, target: Member) -> Promotion:
        state = _require_state(target)
        if state.role == SLAVE:
            raise ConfigError(f"{target.address} is already a slave", hint="eruca cluster list shows the master")
        situation = await _survey(self._connection, target, self._count)
        _refuse_elected(situation)
        self._report = Promotion(broker=target.broker, before=target.address, master="", epoch=state.epoch)
        if self._dry_run:
            return self._report
        await self._change(target.address, ChangeRoleHeader(role=SLAVE, epoch=state.epoch, force=self._force))
        self._note(f"{target.address} accepts no more messages; `eruca cluster promote` makes a member the master")
        self._report.done = True
        return self._report

    # -- ways to change roles ----------------------------------------------------------------------------------------

    async def _hand_over(self, situation: Situation, master: ReplicationState, chosen: ReplicationState) -> None:
        """The master answers: it stops accepting messages, the slave copies the rest, and they swap roles."""
        report = self._report
        if not report.objections:
            await self._wait_for(chosen.address, master.tail - _NEAR_BYTES, "has nearly all of the log")
        epoch = report.epoch
        if master.role == FENCED:
            stopped = master  # by an earlier attempt that was interrupted
        else:
            stopped = await self._stop(master.address, epoch)
        self._note(f"{master.address} accepts no more messages; its log ends at {stopped.tail}")
        try:
            if not report.objections:
                await self._wait_for(chosen.address, stopped.tail, "has all of the log")
            await self._lead(chosen.address, epoch, -1 if report.objections else stopped.tail)
        except ErucaError as error:
            await self._take_back(master.address, chosen.address, epoch, error)
        await self._follow(situation, chosen.address, epoch)

    async def _take_over(self, situation: Situation, chosen: ReplicationState) -> None:
        """The master does not answer: the others are told to stop following it, then the slave takes over."""
        epoch = self._report.epoch
        others = [address for address in situation.states if address != chosen.address]
        told: dict[str, ReplicationState] = {chosen.address: chosen}
        for address in others:
            header = ChangeRoleHeader(role=SLAVE, epoch=epoch, master_address=chosen.address, force=self._force)
            try:
                told[address] = await self._change(address, header)
                self._note(f"{address} no longer follows a master below epoch {epoch}")
            except ErucaError as error:
                self._warn(f"{address} could not be told: {error}")
        told[chosen.address] = await read_state(self._connection, chosen.address)
        # Since they were asked they may have received more of the log, and one may have stopped.
        final = Situation(
            name=situation.name,
            states=told,
            known=situation.known,
            java=situation.java,
            told_count=situation.told_count,
        )
        new = [each for each in find_objections(final, chosen.address) if each.reason not in self._report.objections]
        self._refuse(new)
        await self._lead(chosen.address, epoch, told[chosen.address].tail)
        await self._follow(situation, chosen.address, epoch, skip=frozenset(told))

    async def _resign(self, situation: Situation, master: ReplicationState) -> Promotion:
        """For members that elect their master: it gives up its lease, and they elect another."""
        report = self._report = Promotion(broker=situation.name, before=master.address, master="", epoch=master.epoch)
        if self._dry_run:
            return report
        await self._change(master.address, ChangeRoleHeader(role=SLAVE, epoch=master.epoch, force=self._force))
        self._note(f"{master.address} has given up its lease")
        await self._wait_for_election(situation)
        return report

    async def _force_election(self, situation: Situation, master: ReplicationState | None, target: str) -> Promotion:
        """For members that cannot elect a master because the one with all messages is gone for good."""
        if not self._force or master is not None:
            _refuse_elected(situation)
        objection = Objection("the members could not elect a master: messages of the last one may be lost")
        report = self._report = Promotion(
            broker=situation.name,
            before=_name_lost_master(situation),
            master=target,
            epoch=find_highest_epoch(situation.states),
            objections=[objection.reason],
        )
        if self._dry_run:
            return report
        self._refuse([objection])
        await self._change(target, ChangeRoleHeader(role=MASTER, force=True))
        await self._wait_for_election(situation)
        return report

    async def _wait_for_election(self, situation: Situation) -> None:
        report, before = self._report, find_highest_epoch(situation.states)
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while asyncio.get_running_loop().time() < deadline:
            for row in await list_members(self._connection, situation.name):
                if row.state is not None and row.role == MASTER and row.state.epoch > before:
                    report.master, report.epoch, report.done = row.address, row.state.epoch, True
                    self._note(f"{row.address} is the master, epoch {row.state.epoch}")
                    return
            await asyncio.sleep(_POLL_S)
        raise NetError(
            f"no master was elected within {self._wait_s:g} s",
            hint="eruca cluster list shows the members; check that etcd is reachable",
        )

    # -- steps -------------------------------------------------------------------------------------------------------

    def _refuse(self, objections: list[Objection]) -> None:
        """Raise ConfigError if there is an objection; with `force` they become warnings."""
        if not objections:
            return
        if not self._force:
            hint = "--force promotes it anyway"
            if any(objection.is_about_count for objection in objections):
                hint += "; --members N sets the number of members"
            reasons = "; ".join(objection.reason for objection in objections)
            raise ConfigError(f"{self._report.master} is not promoted: {reasons}", hint=hint)
        for objection in objections:
            self._warn(f"forced although {objection.reason}")

    async def _wait_for(self, address: str, position: int, what: str) -> None:
        """Wait until a slave has the log up to a position. Raises NetError when that takes too long."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while True:
            state = await read_state(self._connection, address)
            if state.tail >= position:
                self._note(f"{address} {what}")
                return
            if asyncio.get_running_loop().time() > deadline:
                raise NetError(
                    f"{address} is {position - state.tail} bytes behind after {self._wait_s:g} s",
                    hint="`eruca cluster lag` shows whether it catches up; --wait gives it more time",
                )
            await asyncio.sleep(_POLL_S)

    async def _stop(self, address: str, epoch: int) -> ReplicationState:
        try:
            return await self._change(address, ChangeRoleHeader(role=FENCED, epoch=epoch, force=self._force))
        except NetError as error:
            # The answer was lost, perhaps not the request.
            try:
                state = await read_state(self._connection, address)
            except ErucaError:
                raise NetError(
                    f"{address} was told to stop and does not answer whether it did: {error}",
                    hint="eruca cluster list shows whether it is the master; if none is, run the command again",
                ) from error
            if state.role != FENCED or state.epoch != epoch:
                raise
            return state

    async def _lead(self, address: str, epoch: int, position: int, *, force: bool = False) -> None:
        header = ChangeRoleHeader(role=MASTER, epoch=epoch, force=force or self._force, wait_position=position)
        try:
            state = await self._change(address, header)
        except NetError:
            # The answer was lost, perhaps not the request.
            state = await read_state(self._connection, address)
            if state.role != MASTER or state.epoch != epoch:
                raise
        self._note(f"{address} is the master, epoch {state.epoch}")

    async def _see_registered(self, target: Member) -> None:
        """Wait until producers find the new master. A name server may know of a newer one than the members do."""
        deadline = asyncio.get_running_loop().time() + _REGISTERED_S
        while (await self._connection.list_masters()).get(target.broker) != target.address:
            state = await read_state(self._connection, target.address)
            if state.role != MASTER:
                raise NetError(
                    f"{target.address} was the master for a moment, then it heard of epoch {state.epoch}",
                    hint="eruca cluster list shows the master; if there is none, run the command again",
                )
            if asyncio.get_running_loop().time() > deadline:
                self._warn(f"the name server does not list {target.address} as the master yet")
                return
            await asyncio.sleep(_POLL_S)

    async def _take_back(self, master: str, chosen: str, epoch: int, error: ErucaError) -> None:
        """Make the old master resume if the new one certainly has not started and will not."""
        again = count_promotion(epoch)
        try:
            state = await read_state(self._connection, chosen)
            if state.role == MASTER and state.epoch >= epoch:
                return
            # A request for the first epoch may still be under way: a member that has heard of a later one refuses it.
            header = ChangeRoleHeader(role=SLAVE, epoch=again, master_address=master, force=self._force)
            state = await self._change(chosen, header)
        except ErucaError:
            raise NetError(
                f"{chosen} does not answer whether it became the master, so {master} accepts no messages: {error}",
                hint=f"eruca cluster promote {chosen}, or {master} if {chosen} is gone for good",
            ) from error
        if any(each.epoch >= epoch for each in state.epochs):
            raise NetError(
                f"{chosen} was the master for a moment and may have accepted messages, so {master}"
                f" accepts none: {error}",
                hint=f"eruca cluster promote {chosen}",
            ) from error
        try:
            await self._lead(master, again, -1, force=True)
        except ErucaError:
            raise NetError(
                f"{master} was told to stop and cannot be told to resume: {error}",
                hint=f"eruca cluster list shows whether it is the master; if not, eruca cluster promote {master}",
            ) from error
        raise error

    async def _follow(self, situation: Situation, master: str, epoch: int, skip: frozenset[str] = frozenset()) -> None:
        for address in situation.states:
            if address == master or address in skip:
                continue
            header = ChangeRoleHeader(role=SLAVE, epoch=epoch, master_address=master, force=self._force)
            try:
                await self._change(address, header)
                self._note(f"{address} follows {master}")
            except ErucaError as error:
                self._warn(f"{address} could not be told and will learn of {master} from the name servers: {error}")

    async def _change(self, address: str, header: ChangeRoleHeader) -> ReplicationState:
        command = make_request(RequestCode.CHANGE_ROLE, header)
        _, body = await self._connection.calls.ask(address, command, _CHANGE_MS)
        if not isinstance(body, ReplicationState):
            raise NetError(f"broker {address} answered without its state")
        return body

    def _note(self, step: str) -> None:
        self._report.steps.append(step)
        if self._tell is not None:
            self._tell(step)

    def _warn(self, text: str) -> None:
        self._report.warnings.append(text)


def _is_elected(situation: Situation) -> bool:
    return any(state.failover for state in situation.states.values())


def _refuse_elected(situation: Situation) -> None:
    if _is_elected(situation):
        raise ConfigError(
            f"the members of {situation.name} elect their master in etcd",
            hint="eruca cluster demote MASTER makes it step down, and they elect another; while there is none, --force"
            " makes this one the master",
        )


def _name_lost_master(situation: Situation) -> str:
    followed = [state.master for state in situation.states.values() if state.master is not None]
    return max(followed, key=lambda master: master.epoch).address if followed else ""


async def _survey(connection: Connection, target: Member, count: int | None) -> Situation:
    members = await list_members(connection, target.broker)
    states = {row.address: row.state for row in members if row.state is not None}
    if target.state is not None:
        states.setdefault(target.address, target.state)
    return Situation(
        name=target.broker,
        states=states,
        known=frozenset(row.address for row in members) | {target.address},
        java=frozenset(row.address for row in members if row.role == JAVA),
        told_count=count,
    )


def _require_state(member: Member) -> ReplicationState:
    if member.role == JAVA:
        raise ConfigError(
            f"{member.address} is a Java broker, whose role is set in its broker.conf",
            hint="set brokerRole and brokerId there and restart it",
        )
    if member.state is None:
        raise ConfigError(
            f"broker {member.address} does not answer: {member.problem}",
            hint="eruca cluster list shows which members answer",
        )
    return member.state
