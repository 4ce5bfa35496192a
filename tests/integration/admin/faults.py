"""Faults for `eruca doctor`, made with real clients in a running cluster of Eruca or Java brokers.

A case makes one fault in topics and groups with names of its own, and returns what the doctor must find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from eruca import Consumer, Decision, Message, Outcome, Producer, TransactionalProducer
from eruca._client.group.settings import Rebalance, Retry
from eruca._net.caller import Caller
from eruca._wire.bodies import ConsumerData, HeartbeatData, MessageQueue, SubscriptionData
from eruca._wire.catalog import encode_request_body
from eruca._wire.codes import VERSION_ANNOUNCED, Language, RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca.admin import Admin, Examination, Finding, Limits, Rules
from tests.integration.admin.staging import bury, prepare, wait_until
from tests.patience import PATIENCE_S

LIMITS = Limits(sample=0.5)
QUEUES = 4
# That of release 4.2.0.
_OLD_VERSION = 253


class Wanted(NamedTuple):
    """What the doctor must find."""

    id: str
    where: str
    rules: Rules = Rules()


class Stage:
    """A running cluster, and the clients of one case, which end with it."""

    def __init__(self, admin: Admin, name: str, stack: AsyncExitStack) -> None:
        """`name` is that of the case: the prefix of its topics and groups."""
        self.admin = admin
        self.topic = f"{name}-orders"
        self.group = f"{name}-billing"
        self.stack = stack

    async def create(self, queues: int = QUEUES) -> None:
        """Create the topic of the case, and wait until clients can find it."""
        await self.admin.topics.create(self.topic, queues=queues)

        async def has_route() -> bool:
            return await self.admin.connection.find_route(self.topic) is not None

        await wait_until(has_route, f"a route of {self.topic}")

    async def send(self, count: int, queue: int | None = None) -> None:
        """Send messages, to all queues or to one."""
        async with Producer(group="stage-senders", options=self.admin.options) as producer:
            queues = sorted((await self.admin.connection.routes.get_for_send(self.topic)).write_queues)
            for number in range(count):
                where: Any = None if queue is None else queues[queue]
                await producer.send(self.topic, b"body %d" % number, queue=where)

    async def join(
        self, handle: Callable[[Message], Awaitable[Outcome | None]] | None = None, *, tags: str = "*", **how: Any
    ) -> Consumer:
        """Join the group of the case with a handler, by default one that accepts everything."""
        consumer = Consumer(group=self.group, start="earliest", drain=0.1, options=self.admin.options, **how)

        async def accept(message: Message) -> Outcome | None:
            return None if handle is None else await handle(message)

        consumer.handler(self.topic, tags)(accept)
        return await self.stack.enter_async_context(consumer)

    async def beat(self, client_id: str, *, version: int = VERSION_ANNOUNCED) -> None:
        """Send heartbeats of a member, on a connection that only answers."""
        caller = Caller(None)
        self.stack.push_async_callback(caller.close)
        topics = [SubscriptionData(topic=self.topic, sub_string="*")]
        body = HeartbeatData(
            client_id=client_id,
            consumer_data_set=[ConsumerData(group_name=self.group, subscription_data_set=topics)],
        )
        for address in (await self.admin.connection.list_masters()).values():
            data = encode_request_body(RequestCode.HEART_BEAT, body, None, version=version)
            command = make_request(RequestCode.HEART_BEAT, None, data, language=Language.JAVA, version=version)
            answer = await caller.call(address, command, PATIENCE_S * 1000)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def wait_for_members(self, count: int) -> None:
        """Wait until the group has some members and each queue that has one has its owner."""

        async def is_so() -> bool:
            return len((await self.admin.groups.members(self.group)).items) == count

        await wait_until(is_so, f"{count} members of {self.group}")

    async def set_config(self, **options: str) -> None:
        """Change options of the brokers until the end of the case."""
        before = (await self.admin.brokers.config()).items[0].options
        old = {name: before[name] for name in options if name in before}
        self.stack.push_async_callback(self.admin.brokers.set_config, old)
        changed = await self.admin.brokers.set_config(options)
        assert not changed.failed, changed


class Chosen:
    """A strategy that gives a member the queues with some numbers."""

    name = "chosen"

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues with these numbers; the retry topic has only queue 0."""
        return [queue for queue in queues if queue.queue_id in self._numbers]


async def wait_for(admin: Admin, wanted: Wanted, limits: Limits = LIMITS) -> tuple[Finding, Examination]:
    """Examine the cluster until the finding is there: registrations and heartbeats take a moment."""
    seen: list[Examination] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                seen.append(await admin.doctor.examine(rules=wanted.rules, limits=limits))
                for finding in seen[-1].findings:
                    if (finding.id, finding.where) == (wanted.id, wanted.where):
                        return finding, seen[-1]
    except TimeoutError:
        pass
    raise AssertionError(f"{wanted.id} of {wanted.where} is not found: {seen[-1] if seen else 'no answer'}")


async def work_well(stage: Stage) -> None:
    """Do what healthy applications do, until all is done: two members consume, and a transaction is committed."""
    await stage.create()
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(message.message_id)

    for _ in range(2):
        await stage.join(handle)
    await stage.send(40)

    async def decide(message: Message) -> Decision:
        return Decision.COMMIT

    async with (
        TransactionalProducer(group="shop", check=decide, options=stage.admin.options) as producer,
        producer.transaction(stage.topic, b"paid"),
    ):
        pass

    async def is_consumed() -> bool:
        rows = (await stage.admin.offsets.show(stage.group)).items
        return len(seen) >= 41 and all(row.lag == 0 for row in rows)

    await wait_until(is_consumed, "everything consumed")


# --- backlog ----------------------------------------------------------------------------------------------------------


async def case_group_absent(stage: Stage) -> Wanted:
    await stage.create()
    await stage.send(5)
    await stage.admin.offsets.reset(stage.group, stage.topic, "earliest")
    return Wanted("group-absent", f"group {stage.group}")


async def case_group_stuck(stage: Stage) -> Wanted:
    await stage.create()
    await stage.join(_hang)
    await stage.send(20)
    return Wanted("group-stuck", f"group {stage.group}", Rules(stuck_after=0.5))


async def _hang(message: Message) -> Outcome | None:
    await asyncio.Event().wait()
    return None


async def case_backlog_uneven(stage: Stage) -> Wanted:
    await stage.create()
    await stage.admin.offsets.reset(stage.group, stage.topic, "earliest")
    await stage.send(30, queue=2)
    await stage.send(4)
    return Wanted("backlog-uneven", f"group {stage.group}", Rules(uneven_lag=20))


async def case_unread_expiring(stage: Stage) -> Wanted:
    await stage.create()
    await stage.send(3)
    await stage.admin.offsets.reset(stage.group, stage.topic, "earliest")
    kept_hours = int((await stage.admin.brokers.config()).items[0].options["fileReservedTime"])
    # A second of it.
    return Wanted("unread-expiring", f"group {stage.group}", Rules(expiring_share=1 / (kept_hours * 3600)))


# --- members ----------------------------------------------------------------------------------------------------------


async def case_group_starved(stage: Stage) -> Wanted:
    await stage.create(queues=1)
    for _ in range(3):
        await stage.join()
    return Wanted("group-starved", f"group {stage.group}")


async def case_queue_without_owner(stage: Stage) -> Wanted:
    await stage.create()
    await stage.admin.offsets.reset(stage.group, stage.topic, "earliest")
    await stage.join(rebalance=Rebalance(strategy=Chosen(0, 1)))
    await stage.join(rebalance=Rebalance(strategy=Chosen(2)))
    await stage.send(20)
    return Wanted("queue-without-owner", f"group {stage.group}")


async def case_members_uneven(stage: Stage) -> Wanted:
    await stage.create()
    await stage.join(_hang, rebalance=Rebalance(strategy=Chosen(0, 1, 2)))
    await stage.join(_hang, rebalance=Rebalance(strategy=Chosen(3)))
    await stage.send(20)
    return Wanted("members-uneven", f"group {stage.group}")


async def case_client_id_twice(stage: Stage) -> Wanted:
    await stage.create()
    for _ in range(2):
        await stage.beat("10.0.0.7@DEFAULT")
    return Wanted("client-id-twice", f"group {stage.group}")


async def case_group_differs(stage: Stage) -> Wanted:
    await stage.create()
    await stage.join(tags="paid")
    await stage.join(tags="created")
    return Wanted("group-differs", f"group {stage.group}")


async def case_client_old(stage: Stage) -> Wanted:
    await stage.create()
    await stage.beat("10.0.0.7@4711", version=_OLD_VERSION)
    return Wanted("client-old", "cluster")


# --- contents ---------------------------------------------------------------------------------------------------------


async def case_dead_letters_growing(stage: Stage) -> Wanted:
    await stage.create()
    # A member, so that its group exists where groups are not created automatically.
    await stage.join(retry=Retry(max_deliveries=1))
    await bury(stage.admin, stage.group, stage.topic, 2)
    return Wanted("dead-letters-growing", f"group {stage.group}")


async def case_dead_letters(stage: Stage) -> Wanted:
    await stage.create()
    await stage.join()
    await bury(stage.admin, stage.group, stage.topic, 2)
    # They are old at once.
    return Wanted("dead-letters", f"group {stage.group}", Rules(growing_within=-3600.0))


async def case_halves_in_doubt(stage: Stage) -> Wanted:
    await stage.create()
    await prepare(stage.admin, stage.topic, f"{stage.topic}-half")
    return Wanted("halves-in-doubt", "producer group stage-payments", Rules(half_after=0.2))


async def case_topic_not_writable(stage: Stage) -> Wanted:
    await stage.create()
    await stage.admin.topics.set_permission(stage.topic, "R")
    return Wanted("topic-not-writable", f"topic {stage.topic}")


async def case_topic_not_readable(stage: Stage) -> Wanted:
    await stage.create()
    await stage.admin.topics.set_permission(stage.topic, "W")
    return Wanted("topic-not-readable", f"topic {stage.topic}")


async def case_messages_out_of_reach(stage: Stage) -> Wanted:
    await stage.create()
    await stage.send(3, queue=QUEUES - 1)
    # The group has more to read when its queues are taken away.
    member = await stage.join()

    async def has_consumed() -> bool:
        rows = (await stage.admin.offsets.export(stage.group)).offsets
        return any((row.topic, row.queue, row.offset) == (stage.topic, QUEUES - 1, 3) for row in rows)

    await wait_until(has_consumed, "an offset")
    await member.close()
    await stage.send(2, queue=QUEUES - 1)
    await stage.admin.topics.update(stage.topic, queues=1)
    return Wanted("messages-out-of-reach", f"topic {stage.topic}")


# --- brokers ----------------------------------------------------------------------------------------------------------


async def case_broker_not_writable(stage: Stage) -> Wanted:
    await stage.set_config(brokerPermission="4")
    return Wanted("broker-not-writable", await _name_master(stage))


async def case_disk_full(stage: Stage) -> Wanted:
    # Any disk is fuller than this.
    await stage.set_config(diskMaxUsedSpaceRatio="10")
    return Wanted("disk-full", await _name_master(stage))


async def _name_master(stage: Stage) -> str:
    ((name, address),) = (await stage.admin.connection.list_masters()).items()
    return f"broker {name} ({address})"


#: By the name of the finding.
CASES: dict[str, Callable[[Stage], Awaitable[Wanted]]] = {
    name.removeprefix("case_").replace("_", "-"): case
    for name, case in list(globals().items())
    if name.startswith("case_")
}
