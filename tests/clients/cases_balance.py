"""Members of a group share its queues: who has which, what happens when one comes or goes, and who is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from eruca import ClientOptions, Consumer, Message, MessageQueue, Producer, Rebalance
from eruca._client.session.session import Session
from eruca._core.allocation import (
    AverageStrategy,
    ConfigStrategy,
    ConsistentHashStrategy,
    MachineRoomStrategy,
    NearbyRoomStrategy,
    Strategy,
    sort_clients,
    sort_queues,
)
from eruca._wire.codes import RequestCode
from eruca._wire.headers import ConsumerGroupHeader
from eruca.errors import RequestRefused
from tests.clients.stage import (
    QUICK_REBALANCE,
    Collector,
    ask_broker,
    create_topic,
    find_broker,
    list_numbers,
    make_consumer,
    poll,
    read_messages,
    send_numbered,
    wait_for_queues,
    wait_until,
    whole,
)


def _by(strategy: str | Strategy) -> Rebalance:
    return replace(QUICK_REBALANCE, strategy=strategy)


async def _prepare(nameserver: str, topic: str, group: str, queues: int) -> list[MessageQueue]:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, queues)
        return await producer.list_queues(topic)


async def _join(stack: AsyncExitStack, consumers: list[Consumer]) -> list[Consumer]:
    """Start consumers; returns them in the order of their client ids, which is the one that counts."""
    for consumer in consumers:
        await stack.enter_async_context(consumer)
    ids = sort_clients(consumer._session.client_id for consumer in consumers)
    return sorted(consumers, key=lambda consumer: ids.index(consumer._session.client_id))


async def _wait_until_shared(one: Consumer, two: Consumer, each: int = 2) -> None:
    """Wait until two members have this many queues each, and none in common."""
    await wait_until(
        lambda: len(one.queues) == len(two.queues) == each and not set(one.queues) & set(two.queues),
        f"{each} queues each",
    )


def _numbers(consumer: Consumer) -> list[int]:
    return [queue.queue_id for queue in consumer.queues]


async def case_two_members_share_the_queues(nameserver: str, topic: str, group: str) -> None:
    await _prepare(nameserver, topic, group, 4)
    one, two = make_consumer(nameserver, group), make_consumer(nameserver, group)
    seen = [Collector(consumer, topic) for consumer in (one, two)]
    async with Producer(nameserver, group=group) as producer, one, two:
        assert one._session is not two._session
        await _wait_until_shared(one, two)
        await send_numbered(producer, topic, range(40))
        await wait_until(lambda: sum(len(collector.messages) for collector in seen) >= 40, "40 messages")
        assert sorted(seen[0].bodies + seen[1].bodies, key=int) == list_numbers(40)
        assert [len(collector.messages) for collector in seen] == [20, 20]


async def case_the_last_member_has_everything(nameserver: str, topic: str, group: str) -> None:
    await _prepare(nameserver, topic, group, 4)
    two = make_consumer(nameserver, group)
    collector = Collector(two, topic)
    async with make_consumer(nameserver, group, topic) as one, two:
        await _wait_until_shared(one, two)
        await one.close()
        await wait_for_queues(two, 4)
        async with Producer(nameserver, group=group) as producer:
            await send_numbered(producer, topic, range(8))
        assert sorted(await collector.wait(8)) == list_numbers(8)


async def case_a_member_that_vanishes_is_replaced(nameserver: str, topic: str, group: str) -> None:
    """Its connections end without a word; the broker notices and tells the others, who would not look on their own."""
    await _prepare(nameserver, topic, group, 4)
    async with (
        make_consumer(nameserver, group, topic, rebalance=replace(QUICK_REBALANCE, interval=3600.0)) as one,
        make_consumer(nameserver, group, topic) as lost,
    ):
        await _wait_until_shared(one, lost)
        await lost._session.caller.close()
        await wait_for_queues(one, 4)


async def case_a_change_is_told_by_the_broker(nameserver: str, topic: str, group: str) -> None:
    """Nobody checks on their own here for a long time."""
    await _prepare(nameserver, topic, group, 4)
    async with make_consumer(nameserver, group, topic, rebalance=replace(QUICK_REBALANCE, interval=3600.0)) as one:
        await wait_for_queues(one, 4)
        async with make_consumer(nameserver, group, topic, rebalance=replace(QUICK_REBALANCE, interval=3600.0)) as two:
            await _wait_until_shared(one, two)
        await wait_for_queues(one, 4)


async def case_average_gives_neighbours(nameserver: str, topic: str, group: str) -> None:
    await _prepare(nameserver, topic, group, 8)
    async with AsyncExitStack() as stack:
        members = await _join(stack, [make_consumer(nameserver, group, topic) for _ in range(3)])
        wanted = [[0, 1, 2], [3, 4, 5], [6, 7]]
        await wait_until(lambda: [_numbers(member) for member in members] == wanted, str(wanted))


async def case_circle_deals_out(nameserver: str, topic: str, group: str) -> None:
    await _prepare(nameserver, topic, group, 8)
    async with AsyncExitStack() as stack:
        members = await _join(
            stack,
            [make_consumer(nameserver, group, topic, rebalance=_by("circle")) for _ in range(3)],
        )
        wanted = [[0, 3, 6], [1, 4, 7], [2, 5]]
        await wait_until(lambda: [_numbers(member) for member in members] == wanted, str(wanted))


async def case_consistent_hash_moves_few(nameserver: str, topic: str, group: str) -> None:
    queues = sort_queues(await _prepare(nameserver, topic, group, 16))
    strategy = "consistent-hash"
    async with AsyncExitStack() as stack:
        members = await _join(
            stack, [make_consumer(nameserver, group, topic, rebalance=_by(strategy)) for _ in range(3)]
        )

        def agree() -> bool:
            ids = [member._session.client_id for member in members]
            rule = ConsistentHashStrategy()
            return all(m.queues == sorted(rule.allocate(group, m._session.client_id, queues, ids)) for m in members)

        await wait_until(agree, "shared by the ring")
        before = {queue: member for member in members for queue in member.queues}
        gone = members.pop()
        await gone.close()
        await wait_until(agree, "shared by the ring")
        after = {queue: member for member in members for queue in member.queues}
        assert after.keys() == before.keys()
        assert all(after[queue] is member for queue, member in before.items() if member is not gone)


async def case_queues_may_be_written_down(nameserver: str, topic: str, group: str) -> None:
    queues = await _prepare(nameserver, topic, group, 4)
    async with (
        make_consumer(nameserver, group, topic, rebalance=_by(ConfigStrategy(queues[:1]))) as one,
        make_consumer(nameserver, group, topic, rebalance=_by(ConfigStrategy(queues[1:]))) as two,
    ):
        await wait_until(lambda: one.queues == queues[:1] and two.queues == queues[1:], "as written down")


async def case_a_machine_room_keeps_its_queues(nameserver: str, topic: str, group: str) -> None:
    """The broker here has no room in its name, so a member that wants a single room gets nothing."""
    queues = await _prepare(nameserver, topic, group, 4)

    class Rooms:
        def find_broker_room(self, queue: MessageQueue) -> str:
            return f"room-{queue.queue_id % 2}"

        def find_client_room(self, client_id: str) -> str:
            return "room-0"

    async with make_consumer(nameserver, f"{group}-1", topic, rebalance=_by(MachineRoomStrategy(["room-1"]))) as nobody:
        nearby = NearbyRoomStrategy(AverageStrategy(), Rooms())
        async with AsyncExitStack() as stack:
            members = await _join(
                stack, [make_consumer(nameserver, group, topic, rebalance=_by(nearby)) for _ in range(2)]
            )
            await wait_until(lambda: [_numbers(member) for member in members] == [[0, 1], [2, 3]], "shared by rooms")
        assert nobody.queues == []
    assert len(queues) == 4


async def case_more_members_than_queues(nameserver: str, topic: str, group: str) -> None:
    await _prepare(nameserver, topic, group, 2)
    async with AsyncExitStack() as stack:
        members = await _join(stack, [make_consumer(nameserver, group, topic) for _ in range(4)])
        wanted = [[0], [1], [], []]
        await wait_until(lambda: [_numbers(member) for member in members] == wanted, str(wanted))


async def case_a_listener_is_told_of_its_queues(nameserver: str, topic: str, group: str) -> None:
    queues = await _prepare(nameserver, topic, group, 4)
    told: list[tuple[list[MessageQueue], list[MessageQueue]]] = []

    def listen(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        told.append((assigned, revoked))
        raise RuntimeError("what a listener raises goes no further")

    async with make_consumer(nameserver, group, topic, rebalance=replace(QUICK_REBALANCE, on_change=listen)) as one:
        await wait_until(lambda: told == [(queues, [])], "told of all queues")
        async with make_consumer(nameserver, group, topic):
            await wait_for_queues(one, 2)
        await wait_for_queues(one, 4)
        await wait_until(lambda: len(told) >= 3, "told again")
        assert [(len(assigned), len(revoked)) for assigned, revoked in told] == [(4, 0), (0, 2), (2, 0)]
    assert sorted(told[-1][1]) == queues  # the end of a consumer revokes what it has


def _make_counting(nameserver: str, topic: str, group: str, seen: Counter[bytes]) -> Consumer:
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        await asyncio.sleep(0.001)
        seen[message.body] += 1

    return consumer


async def case_no_message_is_lost_when_members_change(nameserver: str, topic: str, group: str) -> None:
    """Some may come twice: who gets a queue may ask how far it is before who had it has said so."""
    await _prepare(nameserver, topic, group, 8)
    seen: Counter[bytes] = Counter()
    make = partial(_make_counting, nameserver, topic, group, seen)
    async with Producer(nameserver, group=group) as producer, make() as host:
        numbers = iter(range(10**6))
        for _ in range(4):
            async with make() as guest:
                await _wait_until_shared(host, guest, 4)
                await producer.send_batch(topic, [b"%d" % next(numbers) for _ in range(50)])
                await send_numbered(producer, topic, [next(numbers) for _ in range(30)])
        await wait_until(lambda: len(seen) >= 320, "320 messages")
    assert seen.keys() == set(list_numbers(320))


async def case_a_change_in_a_quiet_moment_repeats_nothing(nameserver: str, topic: str, group: str) -> None:
    await _prepare(nameserver, topic, group, 8)
    seen: Counter[bytes] = Counter()
    make = partial(_make_counting, nameserver, topic, group, seen)
    async with Producer(nameserver, group=group) as producer, make() as host:
        for turn in range(3):
            async with make() as guest:
                await _wait_until_shared(host, guest, 4)
                await send_numbered(producer, topic, range(80 * turn, 80 * turn + 80))
                members = (host, guest)
                wanted = 80 * turn + 80
                await wait_until(
                    partial(lambda who, count: _sum_offsets(who, topic) == count, members, wanted), "all done"
                )
                for member in members:
                    await member.commit()
            await wait_for_queues(host, 8)
    assert seen == Counter(list_numbers(240))


def _sum_offsets(members: tuple[Consumer, ...], topic: str) -> int:
    return sum(offset for member in members for offset in member._member.list_offsets(topic).values())


async def case_client_ids_never_collide(nameserver: str, topic: str, group: str) -> None:
    sessions = [Session(ClientOptions(nameservers=nameserver)) for _ in range(500)]
    assert len({session.client_id for session in sessions}) == 500


async def case_the_broker_knows_its_members(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x", tags="a")
        async with (
            make_consumer(nameserver, group, {topic: "a || b"}) as one,
            make_consumer(nameserver, group, {topic: "a || b"}) as two,
        ):
            ids = {one._session.client_id, two._session.client_id}
            # The first heartbeat may be late for a broker that is busy; the next one is not.
            await poll(partial(_list_members, producer, group), lambda found: set(found) == ids)
            header = ConsumerGroupHeader(consumer_group=group)
            known = await ask_broker(producer._session, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            assert {connection.client_id for connection in known.connection_set} == ids
            assert (known.consume_type, known.message_model, known.consume_from_where) == (
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_FIRST_OFFSET",
            )
            assert known.subscription_table[topic].sub_string == "a || b"
        await poll(partial(_list_members, producer, group), lambda found: found == [])


async def case_a_broker_that_forgot_us_is_told_again(nameserver: str, topic: str, group: str) -> None:
    """The connection breaks once; the consumer is back in its group automatically."""
    await _prepare(nameserver, topic, group, 2)
    async with Producer(nameserver, group=group) as producer, make_consumer(nameserver, group, topic) as consumer:
        await wait_for_queues(consumer, 2)
        address = await find_broker(consumer._session)
        link = consumer._session.caller.find_link(address)
        assert link is not None
        link.abort()
        await producer.send_batch(topic, list_numbers(5))
        assert len(await read_messages(consumer, 5)) == 5
        await poll(partial(_list_members, producer, group), lambda ids: ids == [consumer._session.client_id])
        await wait_for_queues(consumer, 2)


async def _list_members(producer: Producer, group: str) -> list[str]:
    """The members of a group; none when the broker does not know it."""
    try:
        return await producer._session.calls.list_members(await find_broker(producer._session), group)
    except RequestRefused:
        return []


@whole
async def case_twenty_members_share_forty_queues(nameserver: str, topic: str, group: str) -> None:
    queues = await _prepare(nameserver, topic, group, 40)
    async with AsyncExitStack() as stack:
        members = await _join(stack, [make_consumer(nameserver, group, topic) for _ in range(20)])
        await wait_until(
            lambda: (
                all(len(member.queues) == 2 for member in members)
                and sorted(queue for member in members for queue in member.queues) == sorted(queues)
            ),
            "two queues each",
        )
