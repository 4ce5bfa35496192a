"""Transactions: a half message, local work, a decision, and the broker's question when there was none."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from eruca import Message, Producer, Receipt, SendStatus
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca.errors import MessageIllegal
from tests.clients.stage import (
    create_topic,
    fetch_topic,
    list_numbers,
    make_consumer,
    read_messages,
    wait_until,
    whole,
)


class _Checker:
    """Answers questions of the broker, one after the other; the last answer stays."""

    def __init__(self, *answers: Decision | Exception | None) -> None:
        self.asked: list[Message] = []
        self._answers = list(answers)

    async def __call__(self, message: Message) -> Decision | None:
        """The check."""
        self.asked.append(message)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def _decide(decision: Decision | None) -> object:
    async def work(receipt: Receipt) -> Decision | None:
        return decision

    return work


async def case_what_is_committed_is_seen(nameserver: str, topic: str, group: str) -> None:
    checker = _Checker(Decision.ROLLBACK)
    async with TransactionalProducer(nameserver, group=group, check=checker) as producer:
        await create_topic(producer, topic, 1)
        seen_before: list[Message] = []

        async def work(receipt: Receipt) -> Decision:
            assert receipt.status is SendStatus.STORED
            seen_before.extend(await fetch_topic(producer._session, topic, 0))
            return Decision.COMMIT

        result = await producer.send_transaction(topic, b"paid", local=work, tags="t", keys=["k"])
        assert (result.decision, seen_before) == (Decision.COMMIT, [])
        (message,) = await fetch_topic(producer._session, topic, 1)
        assert (message.topic, message.body, message.tags, message.keys) == (topic, b"paid", "t", ["k"])
        assert message.message_id == result.receipt.message_id == message.transaction_id
        assert checker.asked == []


async def case_what_is_rolled_back_is_not_seen(nameserver: str, topic: str, group: str) -> None:
    checker = _Checker(Decision.COMMIT)
    async with TransactionalProducer(nameserver, group=group, check=checker) as producer:
        await create_topic(producer, topic, 1)
        for number in range(6):
            decision = Decision.COMMIT if number % 2 else Decision.ROLLBACK
            await producer.send_transaction(topic, b"%d" % number, local=_decide(decision))  # type: ignore[arg-type]
        messages = await fetch_topic(producer._session, topic, 3)
        assert [message.body for message in messages] == [b"1", b"3", b"5"]


async def case_a_block_commits_at_its_end(nameserver: str, topic: str, group: str) -> None:
    async with TransactionalProducer(nameserver, group=group, check=_Checker(Decision.ROLLBACK)) as producer:
        await create_topic(producer, topic, 1)
        async with producer.transaction(topic, b"whole") as half:
            assert await fetch_topic(producer._session, topic, 0) == []
        (message,) = await fetch_topic(producer._session, topic, 1)
        assert message.transaction_id == half.transaction_id


async def case_a_block_that_fails_is_rolled_back(nameserver: str, topic: str, group: str) -> None:
    async with TransactionalProducer(nameserver, group=group, check=_Checker(Decision.COMMIT)) as producer:
        await create_topic(producer, topic, 1)
        with pytest.raises(ValueError, match="no money"):
            async with producer.transaction(topic, b"failed"):
                raise ValueError("no money")
        async with producer.transaction(topic, b"taken back") as half:
            half.rollback()
        async with producer.transaction(topic, b"good"):
            pass
        assert [message.body for message in await fetch_topic(producer._session, topic, 1)] == [b"good"]


async def case_the_broker_asks_about_what_is_open(nameserver: str, topic: str, group: str) -> None:
    checker = _Checker(Decision.COMMIT)
    async with TransactionalProducer(nameserver, group=group, check=checker) as producer:
        await create_topic(producer, topic, 1)
        local = _decide(Decision.UNKNOWN)
        result = await producer.send_transaction(topic, b"open", local=local, keys=["k"])  # type: ignore[arg-type]
        assert result.decision is Decision.UNKNOWN
        (message,) = await fetch_topic(producer._session, topic, 1)
        assert message.body == b"open"
        asked = checker.asked[0]
        assert (asked.topic, asked.body, asked.keys) == (topic, b"open", ["k"])
        assert asked.transaction_id == result.receipt.message_id == message.message_id


@whole
async def case_an_answer_may_be_no(nameserver: str, topic: str, group: str) -> None:
    checker = _Checker(Decision.ROLLBACK)
    async with TransactionalProducer(nameserver, group=group, check=checker) as producer:
        await create_topic(producer, topic, 1)
        async with producer.transaction(topic, b"open") as half:
            half.leave_open()
        await wait_until(lambda: bool(checker.asked), "asked")
        async with producer.transaction(topic, b"good"):
            pass
        assert [message.body for message in await fetch_topic(producer._session, topic, 1)] == [b"good"]


@whole
async def case_the_broker_asks_until_it_knows(nameserver: str, topic: str, group: str) -> None:
    checker = _Checker(None, ValueError("the database is down"), Decision.COMMIT)
    async with TransactionalProducer(nameserver, group=group, check=checker) as producer:
        await create_topic(producer, topic, 1)
        async with producer.transaction(topic, b"open") as half:
            half.leave_open()
        assert [message.body for message in await fetch_topic(producer._session, topic, 1)] == [b"open"]
        assert len(checker.asked) >= 3


@whole
async def case_local_work_that_fails_leaves_it_open(nameserver: str, topic: str, group: str) -> None:
    checker = _Checker(Decision.COMMIT)

    async def work(receipt: Receipt) -> Decision:
        raise ValueError("unclear")

    async with TransactionalProducer(nameserver, group=group, check=checker) as producer:
        await create_topic(producer, topic, 1)
        with pytest.raises(ValueError, match="unclear"):
            await producer.send_transaction(topic, b"open", local=work)
        assert [message.body for message in await fetch_topic(producer._session, topic, 1)] == [b"open"]
        assert checker.asked


@whole
async def case_another_producer_of_the_group_is_asked(nameserver: str, topic: str, group: str) -> None:
    async with TransactionalProducer(nameserver, group=group, check=_Checker(Decision.ROLLBACK)) as first:
        await create_topic(first, topic, 1)
        async with first.transaction(topic, b"left behind") as half:
            half.leave_open()
    checker = _Checker(Decision.COMMIT)
    async with TransactionalProducer(nameserver, group=group, check=checker) as second:
        # Brokers ask those that they have heard of.
        await second.list_queues(topic)
        await second._session.heartbeat()
        assert [message.body for message in await fetch_topic(second._session, topic, 1)] == [b"left behind"]
        assert checker.asked[0].transaction_id == half.transaction_id


async def case_plain_functions_may_decide(nameserver: str, topic: str, group: str) -> None:
    async with TransactionalProducer(nameserver, group=group, check=lambda message: Decision.COMMIT) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_transaction(topic, b"now", local=lambda receipt: Decision.COMMIT)
        await producer.send_transaction(topic, b"never", local=lambda receipt: Decision.ROLLBACK)
        await producer.send_transaction(topic, b"asked", local=lambda receipt: None)
        messages = await fetch_topic(producer._session, topic, 2)
        assert [message.body for message in messages] == [b"now", b"asked"]


async def case_halves_cannot_be_delayed(nameserver: str, topic: str, group: str) -> None:
    async with TransactionalProducer(nameserver, group=group, check=_Checker(Decision.COMMIT)) as producer:
        with pytest.raises(MessageIllegal):
            async with producer.transaction(topic, b"x", delay=timedelta(seconds=1)):
                pass


async def case_a_transactional_producer_sends_plainly_too(nameserver: str, topic: str, group: str) -> None:
    async with TransactionalProducer(nameserver, group=group, check=_Checker(Decision.COMMIT)) as producer:
        await create_topic(producer, topic, 1)
        await producer.send(topic, b"plain")
        await producer.send_batch(topic, [b"batch"])
        messages = await fetch_topic(producer._session, topic, 2)
        assert [message.body for message in messages] == [b"plain", b"batch"]


async def case_consumers_see_committed_messages_only(nameserver: str, topic: str, group: str) -> None:
    body = b"large " * 2000
    async with TransactionalProducer(nameserver, group=group, check=_Checker(Decision.ROLLBACK)) as producer:
        await create_topic(producer, topic, 1)
        async with make_consumer(nameserver, group, {topic: "t"}) as consumer:
            async with producer.transaction(topic, b"0", tags="t") as half:
                half.rollback()
            async with producer.transaction(topic, body, tags="t", properties={"p": "1"}, shard="s"):
                pass
            (message,) = await read_messages(consumer, 1)
            assert (message.body, message.tags, message.properties) == (body, "t", {"p": "1"})


async def case_many_transactions_at_once(nameserver: str, topic: str, group: str) -> None:
    async with TransactionalProducer(nameserver, group=group, check=_Checker(Decision.ROLLBACK)) as producer:
        await create_topic(producer, topic)

        async def pay(number: int) -> None:
            async with producer.transaction(topic, b"%d" % number) as half:
                if number % 3 == 0:
                    half.rollback()

        await asyncio.gather(*[pay(number) for number in range(90)])
        messages = await fetch_topic(producer._session, topic, 60)
        wanted = {body for body in list_numbers(90) if int(body) % 3}
        assert {message.body for message in messages} == wanted


@whole
async def case_a_plain_producer_is_never_asked(nameserver: str, topic: str, group: str) -> None:
    """A producer of the group without a check leaves the question to one that has one."""
    checker = _Checker(Decision.COMMIT)
    async with (
        TransactionalProducer(nameserver, group=group, check=checker) as producer,
        Producer(nameserver, group=group) as plain,
    ):
        await create_topic(plain, topic, 1)
        await plain._session.heartbeat()
        async with producer.transaction(topic, b"open") as half:
            half.leave_open()
        assert [message.body for message in await fetch_topic(producer._session, topic, 1)] == [b"open"]
        assert checker.asked
