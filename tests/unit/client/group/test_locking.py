"""Locks of queues: how long a member relies on one, and when it gives a queue up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from eruca._client.group.inbox import Inbox
from eruca._client.group.locking import LOCK_S, QueueLocks
from eruca._client.group.subscriptions import make_subscription
from eruca._ground.clock import SystemClock
from eruca._wire.bodies import LockedBody, MessageQueue
from eruca.errors import NetError
from tests.patience import PATIENCE_S
from tests.unit.client.scripted import wait_until

ONE, TWO, OTHER = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T"), MessageQueue("b", 0, "T")


class Brokers:
    """Brokers, and a session with them. They lock everything, unless told otherwise."""

    client_id = "c"

    def __init__(self) -> None:
        self.calls = self.routes = self.outages = self
        self.clock = SystemClock()
        # What was asked for, and when.
        self.asked: list[tuple[str, int | None]] = []
        self.asked_at = 0.0
        self.live_ms: int | None = 5000
        self.taken: set[MessageQueue] = set()
        self.silent: set[str] = set()
        self.broken: set[str] = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def find_address(self, broker: str, *, only_this: bool = False) -> str:
        return broker

    def report(self, log: object, server: str, error: Exception, text: str, *args: object) -> None:
        """Nothing to do."""

    async def lock(
        self, address: str, group: str, client_id: str, queues: Sequence[MessageQueue], live_ms: int | None
    ) -> LockedBody:
        self.asked.append((address, live_ms))
        self.asked_at = asyncio.get_running_loop().time()
        await self.may_answer.wait()
        if address in self.silent:
            await asyncio.Event().wait()
        if address in self.broken:
            raise NetError("as wanted")
        return LockedBody(eruca_lock_ms=self.live_ms, locked=[queue for queue in queues if queue not in self.taken])


class Member:
    """The locks of one consumer and its queues, and those it has lost."""

    def __init__(self, brokers: Brokers, interval_s: float = 3.0, *, gives_up: bool = True) -> None:
        self.brokers = brokers
        self.locks = QueueLocks(cast(Any, brokers), "G", interval_s, gives_up=gives_up)
        self.inboxes: dict[MessageQueue, Inbox] = {}
        self.lost: list[MessageQueue] = []

    async def take(self, *queues: MessageQueue) -> None:
        for queue in queues:
            assert await self.locks.lock(queue)
            self.inboxes[queue] = inbox = Inbox(queue, make_subscription("T", "*", 0), 0)
            self.locks.renew(inbox)

    async def lose(self, queue: MessageQueue) -> None:
        self.lost.append(queue)
        self.inboxes[queue].is_lost = True

    async def renew(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.locks.renew_all(self.inboxes, self.lose)


@pytest.mark.parametrize(("interval_s", "wanted_ms"), [(0.1, 10_000), (3.0, 10_000), (20.0, 60_000)])
async def test_a_lock_is_wanted_for_three_renewals(interval_s: float, wanted_ms: int) -> None:
    member = Member(Brokers(), interval_s)
    await member.take(ONE)
    assert member.brokers.asked == [("a", wanted_ms)]


async def test_a_lock_is_relied_on_from_the_time_of_its_request() -> None:
    member = Member(Brokers())
    member.brokers.may_answer.clear()
    taking = asyncio.create_task(member.take(ONE))
    await wait_until(lambda: bool(member.brokers.asked))
    asked_at = member.brokers.asked_at
    await asyncio.sleep(0.05)  # the answer takes its time
    member.brokers.may_answer.set()
    await taking
    assert member.inboxes[ONE].locked_until <= asked_at + 4.0


async def test_a_broker_that_does_not_say_how_long_is_java_s() -> None:
    member = Member(Brokers())
    member.brokers.live_ms = None
    before = asyncio.get_running_loop().time()
    await member.take(ONE)
    assert before + LOCK_S <= member.inboxes[ONE].locked_until <= asyncio.get_running_loop().time() + LOCK_S


async def test_what_another_member_has_is_lost_and_the_rest_is_renewed() -> None:
    member = Member(Brokers())
    await member.take(ONE, TWO)
    member.inboxes[TWO].locked_until -= 1
    ended = member.inboxes[TWO].locked_until
    member.brokers.taken = {ONE}
    await member.renew()
    assert member.lost == [ONE]
    assert member.inboxes[TWO].locked_until > ended
    # What is lost is not asked for again.
    member.brokers.taken = {ONE, TWO}
    await member.renew()
    assert member.lost == [ONE, TWO]


@pytest.mark.parametrize("gives_up", [True, False])
async def test_a_lock_that_was_not_confirmed_in_time_is_given_up_without_asking(gives_up: bool) -> None:
    member = Member(Brokers(), gives_up=gives_up)
    await member.take(ONE)
    member.brokers.asked.clear()
    member.inboxes[ONE].locked_until = asyncio.get_running_loop().time()
    await member.renew()
    # An ordered queue only pauses, and goes on with the next lock.
    assert member.lost == ([ONE] if gives_up else [])
    assert len(member.brokers.asked) == (0 if gives_up else 1)


@pytest.mark.parametrize("how", ["silent", "broken"])
async def test_a_broker_that_does_not_confirm_costs_its_queues_only(how: str) -> None:
    member = Member(Brokers())
    await member.take(ONE, OTHER)
    getattr(member.brokers, how).add("a")
    soon = asyncio.get_running_loop().time() + 0.2
    member.inboxes[ONE].locked_until = member.inboxes[OTHER].locked_until = soon
    # The request to the silent broker is waited for until the lock ends, and not for its own timeout.
    await member.renew()
    assert member.inboxes[OTHER].locked_until > soon
    assert 0 < member.locks.find_pause(member.inboxes.values()) <= 0.2
    await wait_until(lambda: asyncio.get_running_loop().time() >= soon)
    await member.renew()
    assert member.lost == [ONE]
    for task in list(member.locks._asking):
        task.cancel()
