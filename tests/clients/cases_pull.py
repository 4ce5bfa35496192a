"""Pull consumers: members of a group and assigned ones, moving about in queues, single pulls, scheduled pulls."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eruca import (
    ClientOptions,
    Flow,
    Message,
    MessageQueue,
    Offsets,
    Producer,
    PullConsumer,
    PullContext,
    Receipt,
    ScheduledPull,
    Sql,
)
from eruca._client.session.calls import PullStatus
from eruca._wire.codes import RequestCode
from eruca._wire.headers import ResetOffsetHeader
from eruca.errors import ConfigError, OffsetLost, QueueNotOurs, RequestRefused
from tests.clients.stage import (
    PATIENCE_SECONDS,
    QUICK_OPTIONS,
    QUICK_REBALANCE,
    ask_broker,
    create_topic,
    fetch_topic,
    list_numbers,
    send_numbered,
    wait_for_topic,
    wait_until,
)

_FLOW = Flow(hold=1.0, error_pause=0.1)


def make_pull(nameserver: str, group: str, subscribe: Any = (), **settings: Any) -> PullConsumer:
    """A pull consumer with short intervals."""
    quick = {
        "start": "earliest",
        "offsets": Offsets(interval=0.1),
        "rebalance": QUICK_REBALANCE,
        "flow": _FLOW,
        "options": ClientOptions(**QUICK_OPTIONS),
    }
    return PullConsumer(nameserver, group=group, subscribe=subscribe, **{**quick, **settings})


def make_scheduled(nameserver: str, group: str, **settings: Any) -> ScheduledPull:
    """A scheduled pull with short intervals."""
    quick = {
        "start": "earliest",
        "delay": 0.02,
        "rebalance": QUICK_REBALANCE,
        "options": ClientOptions(**QUICK_OPTIONS),
    }
    return ScheduledPull(nameserver, group=group, **{**quick, **settings})


@asynccontextmanager
async def fill_topic(nameserver: str, topic: str, count: int = 0, queues: int = 1) -> AsyncIterator[Producer]:
    """A topic with numbered messages, spread over its queues, and the producer that made it."""
    async with Producer(nameserver, group="filler", options=ClientOptions(**QUICK_OPTIONS)) as producer:
        await create_topic(producer, topic, queues)
        await send_numbered(producer, topic, range(count))
        # Java's broker stores first and puts into queues a moment later.
        await fetch_topic(producer._session, topic, count)
        yield producer


async def poll_until(consumer: PullConsumer, count: int, **how: Any) -> list[Message]:
    """Poll until that many messages came, and no more."""
    found: list[Message] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < count:
            found += await consumer.poll(timeout=1.0, **how)
    assert len(found) == count, found
    return found


def read_bodies(messages: list[Message]) -> list[bytes]:
    """What they say, in their order."""
    return [message.body for message in messages]


async def wait_for_commit(consumer: PullConsumer, queue: MessageQueue, offset: int) -> None:
    """Wait until a group has committed an offset."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await consumer.committed(queue) != offset:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


# -- members of a group --------------------------------------------------------------------------------------------


async def case_poll_gives_every_message_once(nameserver: str, topic: str, group: str) -> None:
    async with (
        fill_topic(nameserver, topic, 100, queues=4) as producer,
        make_pull(nameserver, group, topic) as consumer,
    ):
        found = await poll_until(consumer, 100, max_messages=32)
        assert sorted(read_bodies(found)) == sorted(list_numbers(100))
        assert consumer.assignment == await consumer.list_queues(topic)
        for queue in consumer.assignment:
            of_queue = [message.offset for message in found if message.queue == queue]
            assert of_queue == list(range(len(of_queue)))
            assert consumer.position(queue) == len(of_queue)
        assert await consumer.poll(timeout=0) == []
        # One that waits gets what comes.
        waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE_SECONDS))
        await producer.send(topic, b"late")
        assert read_bodies(await waiting) == [b"late"]


async def case_poll_gives_no_more_than_asked(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 30), make_pull(nameserver, group, topic, poll_batch=4) as consumer:
        first = await consumer.poll(timeout=PATIENCE_SECONDS)
        assert 1 <= len(first) <= 4
        second = await consumer.poll(timeout=PATIENCE_SECONDS, max_messages=7)
        assert 1 <= len(second) <= 7
        assert [message.offset for message in first + second] == list(range(len(first) + len(second)))


async def case_two_members_share_the_queues(nameserver: str, topic: str, group: str) -> None:
    told: list[tuple[int, int]] = []

    async def listen(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        told.append((len(assigned), len(revoked)))

    async with (
        fill_topic(nameserver, topic, queues=4) as producer,
        make_pull(nameserver, group, topic, rebalance=replace(QUICK_REBALANCE, on_change=listen)) as one,
    ):
        await wait_until(lambda: len(one.assignment) == 4, "all queues")
        async with make_pull(nameserver, group, topic) as two:
            await wait_until(lambda: len(one.assignment) == len(two.assignment) == 2, "two queues each")
            assert sorted(one.assignment + two.assignment) == await one.list_queues(topic)
            await send_numbered(producer, topic, range(40))
            mine, others = await asyncio.gather(poll_until(one, 20), poll_until(two, 20))
            assert {message.queue for message in mine} == set(one.assignment)
            assert sorted(read_bodies(mine + others)) == sorted(list_numbers(40))
            lost = two.assignment[0]
            for error in (one.position, one.seek_to_begin):
                await _expect_not_ours(error, lost)
            await _expect_not_ours(lambda queue: one.commit({queue: 1}), lost)
        # What the other has done is not repeated.
        await wait_until(lambda: len(one.assignment) == 4, "all queues again")
        await send_numbered(producer, topic, range(40, 44))
        assert sorted(read_bodies(await poll_until(one, 4))) == [b"40", b"41", b"42", b"43"]
    assert told == [(4, 0), (0, 2), (2, 0), (0, 4)]


async def _expect_not_ours(ask: Any, queue: MessageQueue) -> None:
    try:
        answer = ask(queue)
        if asyncio.iscoroutine(answer):
            await answer
    except QueueNotOurs as error:
        assert queue.broker_name in str(error)
    else:
        raise AssertionError(f"{ask} works for a queue of another member")


async def case_a_restart_goes_on_behind_what_was_handed_out(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 30):
        async with make_pull(nameserver, group, topic, offsets=Offsets(interval=3600.0)) as consumer:
            first = await poll_until(consumer, 10, max_messages=10)
            queue = consumer.assignment[0]
            assert await consumer.committed(queue) == 0
        async with make_pull(nameserver, group, topic) as consumer:
            rest = await poll_until(consumer, 20)
            assert read_bodies(first + rest) == list_numbers(30)
            # All but the last poll is committed while it runs.
            assert await consumer.poll(timeout=0) == []
            await wait_for_commit(consumer, queue, 30)


async def case_an_exception_repeats_the_last_poll(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 10):
        try:
            async with make_pull(nameserver, group, topic) as consumer:
                await poll_until(consumer, 4, max_messages=4)
                await poll_until(consumer, 3, max_messages=3)
                raise ValueError("the program fails")
        except ValueError:
            pass
        async with make_pull(nameserver, group, topic) as consumer:
            assert read_bodies(await poll_until(consumer, 6)) == list_numbers(10)[4:]


async def case_iterating_finishes_one_by_one(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 10):
        seen = []
        try:
            async with make_pull(nameserver, group, topic) as consumer:
                async for message in consumer:
                    seen.append(message.body)
                    if len(seen) == 5:
                        raise ValueError("this one is not done")
        except ValueError:
            pass
        async with make_pull(nameserver, group, topic) as consumer:
            async for message in consumer:
                seen.append(message.body)
                if message.offset == 7:
                    break
        async with make_pull(nameserver, group, topic) as consumer:
            seen += read_bodies(await poll_until(consumer, 2))
    assert seen == [*list_numbers(5), *list_numbers(8)[4:], b"8", b"9"]


async def case_without_auto_commit_only_commit_counts(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 20):
        async with make_pull(nameserver, group, topic, auto_commit=False) as consumer:
            await poll_until(consumer, 5, max_messages=5)
            await consumer.commit()
            await poll_until(consumer, 5, max_messages=5)
        async with make_pull(nameserver, group, topic, auto_commit=False) as consumer:
            assert (await poll_until(consumer, 1, max_messages=1))[0].offset == 5
            (queue,) = consumer.assignment
            await consumer.commit({queue: 12})
            assert await consumer.committed(queue) == 12
            assert consumer.position(queue) == 6
        async with make_pull(nameserver, group, topic) as consumer:
            assert read_bodies(await poll_until(consumer, 8)) == list_numbers(20)[12:]


async def case_a_group_begins_at_the_end_by_default(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 5) as producer:
        async with make_pull(nameserver, group, topic, start="latest") as consumer:
            await wait_until(lambda: len(consumer.assignment) == 1, "the queue")
            assert consumer.position(consumer.assignment[0]) == 5
        # It has begun, although it has got nothing.
        await producer.send(topic, b"between")
        async with make_pull(nameserver, group, topic, start="latest") as consumer:
            assert read_bodies(await poll_until(consumer, 1)) == [b"between"]


async def case_tags_are_filtered(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic) as producer:
        for number in range(12):
            await producer.send(topic, b"%d" % number, tags=["red", "green", "blue"][number % 3])
        async with make_pull(nameserver, group, {topic: "red || blue"}) as consumer:
            found = await poll_until(consumer, 8)
            assert read_bodies(found) == [b"0", b"2", b"3", b"5", b"6", b"8", b"9", b"11"]
            assert {message.tags for message in found} == {"red", "blue"}
            (queue,) = consumer.assignment
        # What the filter left out is behind us, too.
        async with make_pull(nameserver, group) as looker:
            assert await looker.committed(queue) == 12


async def case_sql_is_filtered(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, properties={"size": str(number)})
        async with make_pull(nameserver, group, {topic: Sql("size > 6")}) as consumer:
            assert read_bodies(await poll_until(consumer, 3)) == [b"7", b"8", b"9"]
        consumer = make_pull(nameserver, group + "-wrong", {topic: Sql("size >")})
        try:
            await consumer.start()
        except RequestRefused:
            pass
        else:
            raise AssertionError("an expression that cannot be read is taken")


async def case_every_broadcast_member_reads_everything(nameserver: str, topic: str, group: str) -> None:
    directory = await asyncio.to_thread(tempfile.TemporaryDirectory)

    def make(instance: str) -> PullConsumer:
        options = ClientOptions(instance=instance, **QUICK_OPTIONS)
        folder = Path(directory.name)
        return make_pull(nameserver, group, topic, broadcast=True, options=options, offsets=Offsets(directory=folder))

    async with fill_topic(nameserver, topic, 20, queues=2) as producer:
        async with make("one") as one, make("two") as two:
            for consumer in (one, two):
                assert sorted(read_bodies(await poll_until(consumer, 20))) == sorted(list_numbers(20))
                assert len(consumer.assignment) == 2
            await producer.send(topic, b"handed to one")
            assert read_bodies(await poll_until(one, 1)) == [b"handed to one"]
        await producer.send(topic, b"new")
        async with make("one") as one:
            assert read_bodies(await poll_until(one, 1)) == [b"new"]
            # The broker knows nothing of it.
            async with make_pull(nameserver, group) as looker:
                assert [await looker.committed(queue) for queue in one.assignment] == [None, None]
        async with make("three") as three:
            assert len(await poll_until(three, 22)) == 22
    await asyncio.to_thread(directory.cleanup)


async def case_an_operator_moves_the_group(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 10), make_pull(nameserver, group, topic) as consumer:
        await poll_until(consumer, 10)
        header = ResetOffsetHeader(topic=topic, group=group, timestamp=0, is_force=True)
        await ask_broker(consumer._session, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert read_bodies(await poll_until(consumer, 10)) == list_numbers(10)


# -- moving about --------------------------------------------------------------------------------------------------


async def case_seek(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 20), make_pull(nameserver, group, topic) as consumer:
        await poll_until(consumer, 20)
        (queue,) = consumer.assignment
        await consumer.seek(queue, 15)
        assert consumer.position(queue) == 15
        assert [message.offset for message in await poll_until(consumer, 5)] == [15, 16, 17, 18, 19]
        assert await consumer.seek_to_begin(queue) == 0
        assert (await poll_until(consumer, 3, max_messages=3))[0].offset == 0
        assert await consumer.seek_to_end(queue) == 20
        assert await consumer.poll(timeout=0.2) == []
        await consumer.seek(queue, 20)
        for wrong in (-1, 21):
            try:
                await consumer.seek(queue, wrong)
            except OffsetLost as error:
                assert f"no offset {wrong}: it has 0 to 20" in str(error)
            else:
                raise AssertionError(f"offset {wrong} is taken")
        assert consumer.position(queue) == 20
    # Where one went counts for the next start, whether or not anything came of it.
    async with make_pull(nameserver, group, topic) as consumer:
        await wait_until(lambda: consumer.assignment == [queue], "the queue")
        await consumer.seek(queue, 18)
    async with make_pull(nameserver, group, topic) as consumer:
        assert [message.offset for message in await poll_until(consumer, 2)] == [18, 19]


async def case_seek_to_a_time(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic) as producer, make_pull(nameserver, group) as consumer:
        await send_numbered(producer, topic, range(5))
        await asyncio.sleep(0.05)  # so that the times of the two halves differ
        receipts = await send_numbered(producer, topic, range(5, 10))
        await fetch_topic(producer._session, topic, 10)
        queue = receipts[0].queue
        await consumer.assign([queue])
        stored_at = (await consumer.pull(queue, 5)).messages[0].stored_at
        assert await consumer.seek_to_time(queue, stored_at) == 5
        assert await consumer.offset_at(queue, stored_at - timedelta(days=1)) == 0
        assert await consumer.offset_at(queue, stored_at - timedelta(milliseconds=1)) == 5
        assert await consumer.offset_at(queue, stored_at + timedelta(days=1)) == 10
        assert read_bodies(await poll_until(consumer, 5)) == list_numbers(10)[5:]
        naive = stored_at.replace(tzinfo=None)
        for name, asking in (
            ("time", consumer.seek_to_time(queue, naive)),
            ("time", consumer.offset_at(queue, naive)),
            ("begin", consumer.query(topic, "k", begin=naive)),
            ("end", consumer.query(topic, "k", end=naive)),
        ):
            with pytest.raises(ConfigError, match=f"{name}=.*has no time zone"):
                await asking


async def case_paused_queues_wait(nameserver: str, topic: str, group: str) -> None:
    async with (
        fill_topic(nameserver, topic, 40, queues=2),
        make_pull(nameserver, group, topic) as consumer,
    ):
        first = await poll_until(consumer, 1, max_messages=1)
        await wait_until(lambda: len(consumer.assignment) == 2, "both queues")
        stopped, other = sorted(consumer.assignment, key=lambda queue: queue != first[0].queue)
        consumer.pause([stopped])
        assert consumer.paused == [stopped]
        # Neither what was fetched ahead of it nor what comes.
        assert {message.queue for message in await poll_until(consumer, 20)} == {other}
        assert await consumer.poll(timeout=0.1) == []
        consumer.resume([stopped])
        assert consumer.paused == []
        rest = await poll_until(consumer, 19)
        assert [message.offset for message in rest] == list(range(1, 20))
        consumer.pause()
        assert consumer.paused == consumer.assignment


async def case_paused_queues_do_not_starve_others(nameserver: str, topic: str, group: str) -> None:
    """What was fetched of them counts for nothing until they are resumed."""
    async with (
        fill_topic(nameserver, topic, 80, queues=2),
        make_pull(nameserver, group, topic, flow=replace(_FLOW, cached_max=8, batch=8)) as consumer,
    ):
        (first,) = await poll_until(consumer, 1, max_messages=1)
        one, two = sorted(consumer.assignment, key=lambda queue: queue != first.queue)
        # Both have more ready than there is room for.
        await wait_until(
            lambda: all(len(inbox.ready) >= 8 for inbox in consumer._member.inboxes.values()), "both are full"
        )
        consumer.pause([one])
        found = await poll_until(consumer, 40)
        assert [message.offset for message in found] == list(range(40))
        assert {message.queue for message in found} == {two}
        consumer.resume()
        assert len(await poll_until(consumer, 39)) == 39


async def case_a_pause_holds_for_assigned_queues_that_come_later(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 20, queues=2), make_pull(nameserver, group) as consumer:
        one, two = await consumer.list_queues(topic)
        await consumer.assign([one])
        consumer.pause()
        await consumer.assign([one, two])
        assert consumer.paused == [one, two]
        assert await consumer.poll(timeout=0.3) == []
        consumer.resume([two])
        assert {message.queue for message in await poll_until(consumer, 10)} == {two}


# -- assigned queues -----------------------------------------------------------------------------------------------


async def case_assigned_queues_need_no_group(nameserver: str, topic: str, group: str) -> None:
    async with (
        fill_topic(nameserver, topic, 30, queues=3),
        make_pull(nameserver, group) as one,
        make_pull(nameserver, group) as two,
    ):
        queues = await one.list_queues(topic)
        await one.assign(queues[:2])
        await two.assign(queues)
        assert (one.assignment, two.assignment) == (queues[:2], queues)
        assert {message.queue for message in await poll_until(one, 20)} == set(queues[:2])
        assert sorted(read_bodies(await poll_until(two, 30))) == sorted(list_numbers(30))
        # A queue that stays continues, one that goes is committed; the next poll marks the last one as done.
        assert await one.poll(timeout=0) == []
        await one.seek(queues[1], 4)
        await one.assign(queues[1:])
        assert await one.committed(queues[0]) == 10
        assert one.position(queues[1]) == 4
        await one.assign([])
        assert await one.poll(timeout=0) == []


async def case_assigned_queues_are_filtered(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic) as producer, make_pull(nameserver, group, auto_commit=False) as consumer:
        for number in range(10):
            properties = {"size": str(number)}
            await producer.send(topic, b"%d" % number, tags="odd" if number % 2 else "even", properties=properties)
        queues = await consumer.list_queues(topic)
        await consumer.assign(queues, tags="odd")
        assert read_bodies(await poll_until(consumer, 5)) == [b"1", b"3", b"5", b"7", b"9"]
        await consumer.assign(queues, tags=Sql("size < 3"))
        await consumer.seek_to_begin(queues[0])
        assert read_bodies(await poll_until(consumer, 3)) == [b"0", b"1", b"2"]
        # A reader that only looks leaves nothing behind.
        assert await consumer.committed(queues[0]) is None


async def case_assigned_and_subscribed_do_not_mix(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic), make_pull(nameserver, group, topic) as consumer:
        try:
            await consumer.assign(await consumer.list_queues(topic))
        except ConfigError as error:
            assert "subscribe" in str(error)
        else:
            raise AssertionError("a member of a group is assigned queues")
    async with make_pull(nameserver, group) as consumer:
        try:
            await consumer.poll(timeout=0)
        except ConfigError as error:
            assert "assign" in str(error)
        else:
            raise AssertionError("one that has no queues can be polled")


async def case_a_watched_topic_grows(nameserver: str, topic: str, group: str) -> None:
    told: list[int] = []
    async with (
        fill_topic(nameserver, topic, queues=2) as producer,
        make_pull(
            nameserver,
            group,
            watch={topic: lambda queues: told.append(len(queues))},
        ) as consumer,
    ):
        await consumer.assign((await consumer.list_queues(topic))[:1])
        await create_topic(producer, topic, 5)
        await wait_until(lambda: told == [5], "the listener is told")


# -- single questions ----------------------------------------------------------------------------------------------


async def case_pull_once(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 10) as producer, make_pull(nameserver, group) as consumer:
        (queue,) = await consumer.list_queues(topic)
        result = await consumer.pull(queue, 2, max_messages=4)
        assert (result.status, read_bodies(result.messages)) == (PullStatus.FOUND, [b"2", b"3", b"4", b"5"])
        assert (result.next_offset, result.min_offset, result.max_offset) == (6, 0, 10)
        result = await consumer.pull(queue, 10)
        assert (result.status, result.messages, result.next_offset) == (PullStatus.NO_NEW, [], 10)
        result = await consumer.pull(queue, 50)
        assert (result.status, result.messages, result.next_offset) == (PullStatus.ILLEGAL_OFFSET, [], 10)
        result = await consumer.pull(queue, 0, tags="no such tag")
        assert (result.status, result.messages, result.next_offset) == (PullStatus.NO_MATCH, [], 10)
        waiting = asyncio.create_task(consumer.pull(queue, 10, hold=PATIENCE_SECONDS))
        await producer.send(topic, b"new", properties={"size": "7"})
        assert read_bodies((await waiting).messages) == [b"new"]
        assert read_bodies((await consumer.pull(queue, 10, tags=Sql("size = 7"))).messages) == [b"new"]
        assert await consumer.begin_offset(queue) == 0
        assert await consumer.end_offset(queue) == 11
        assert await consumer.committed(queue) is None
        await consumer.commit({queue: 3})
        assert await consumer.committed(queue) == 3


async def case_find_messages(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic) as producer, make_pull(nameserver, group) as consumer:
        begin = datetime.now(UTC) - timedelta(minutes=1)
        receipts: list[Receipt] = [
            await producer.send(topic, b"%d" % number, keys=[f"k-{number}", "all"]) for number in range(3)
        ]
        end = begin + timedelta(hours=1)
        # An index is written when it gets its turn.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found := await consumer.query(topic, "all", begin, end, 10)) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert read_bodies(found) == [b"0", b"1", b"2"]
        assert read_bodies(await consumer.query(topic, "k-1")) == [b"1"]
        assert await consumer.query(topic, "k-1", begin - timedelta(hours=2), begin - timedelta(hours=1)) == []
        assert await consumer.query(topic, "none") == []
        (by_id,) = await consumer.query(topic, receipts[2].message_id, unique=True)
        assert (by_id.body, by_id.message_id) == (b"2", receipts[2].message_id)
        seen = await consumer.view(by_id.offset_id)
        assert (seen.body, seen.queue, seen.offset) == (b"2", receipts[2].queue, receipts[2].offset)


async def case_a_message_goes_back(nameserver: str, topic: str, group: str) -> None:
    async with fill_topic(nameserver, topic, 2), make_pull(nameserver, group, topic) as consumer:
        messages = await poll_until(consumer, 2)
        await consumer.send_back(messages[1], delay_level=1)
        async with make_pull(nameserver, group) as retries:
            await retries.assign(await wait_for_topic(retries._session, f"%RETRY%{group}", 1))
            (again,) = await poll_until(retries, 1)
            assert (again.body, again.topic, again.delivery) == (b"1", topic, 2)


# -- scheduled pull ------------------------------------------------------------------------------------------------


@dataclass
class Reader:
    """A callback that reads on from where its queue was committed."""

    scheduled: ScheduledPull
    topic: str

    def __post_init__(self) -> None:
        self.bodies: list[bytes] = []
        self.called: list[MessageQueue] = []
        self.scheduled.callback(self.topic)(self.read)

    async def read(self, queue: MessageQueue, context: PullContext) -> None:
        """The callback."""
        self.called.append(queue)
        offset = await context.consumer.committed(queue)
        assert offset is not None
        result = await context.consumer.pull(queue, offset)
        await context.consumer.commit({queue: result.next_offset})
        self.bodies += read_bodies(result.messages)
        context.next_delay = 0.02


async def case_scheduled_pull_calls_for_the_queues_that_are_ours(nameserver: str, topic: str, group: str) -> None:
    told: list[tuple[int, int]] = []

    def listen(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        told.append((len(assigned), len(revoked)))

    one = make_scheduled(nameserver, group, rebalance=replace(QUICK_REBALANCE, on_change=listen))
    two = make_scheduled(nameserver, group)
    first, second = Reader(one, topic), Reader(two, topic)
    async with fill_topic(nameserver, topic, 40, queues=4) as producer, one:
        await wait_until(lambda: len(first.bodies) == 40, "every message")
        assert sorted(first.bodies) == sorted(list_numbers(40))
        async with two:
            await wait_until(lambda: len(one.queues) == len(two.queues) == 2, "two queues each")
            await wait_until(lambda: set(second.called) >= set(two.queues), "calls for the second one")
            first.called.clear()
            await send_numbered(producer, topic, range(40, 60))
            await wait_until(lambda: len(first.bodies) + len(second.bodies) >= 60, "the new messages")
            # A call that was under way may have got all there is of a queue; the next one comes all the same.
            await wait_until(lambda: set(first.called) >= set(one.queues), "calls for the first one")
            assert set(first.called) == set(one.queues)
        await wait_until(lambda: set(first.called) == set(one.queues) and len(one.queues) == 4, "all queues again")
        await send_numbered(producer, topic, range(60, 70))
        await wait_until(lambda: len(first.bodies) + len(second.bodies) >= 70, "the last messages")
    assert sorted(first.bodies + second.bodies) == sorted(list_numbers(70))
    assert told == [(4, 0), (0, 2), (2, 0), (0, 4)]
