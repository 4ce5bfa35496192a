"""What a group wants of a topic: tags and SQL92."""

from __future__ import annotations

import pytest

from eruca import Outgoing, Producer, Sql
from eruca.errors import ConfigError, RequestRefused
from tests.clients.stage import Collector, create_topic, make_consumer, read_messages, send_numbered, wait_for_queues

# The same number in Java's hash: the broker cannot tell them apart.
COLLIDING = ("Aa", "BB")


async def _check(nameserver: str, topic: str, group: str, wanted: str | Sql, sent: list[Outgoing], got: str) -> None:
    """Send messages and one more that ends the run; exactly those of `got` may come, in this order."""
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        async with make_consumer(nameserver, group, {topic: wanted}) as consumer:
            await wait_for_queues(consumer, 1)
            for message in sent:
                await producer.send(topic, message.body, tags=message.tags, properties=message.properties)
            wishes = got.split()
            messages = await read_messages(consumer, len(wishes))
            assert [message.body.decode() for message in messages] == wishes


def _tagged(*tags: str | None) -> list[Outgoing]:
    return [Outgoing((tag or "none").encode(), tags=tag) for tag in tags]


def _with(**values: dict[str, str]) -> list[Outgoing]:
    return [Outgoing(name.encode(), properties=properties) for name, properties in values.items()]


async def case_one_tag(nameserver: str, topic: str, group: str) -> None:
    await _check(nameserver, topic, group, "b", _tagged("a", "b", None, "c", "b"), "b b")


async def case_several_tags(nameserver: str, topic: str, group: str) -> None:
    await _check(nameserver, topic, group, "a|| c  ||d", _tagged("a", "b", None, "c", "d", "a"), "a c d a")


async def case_all_tags(nameserver: str, topic: str, group: str) -> None:
    await _check(nameserver, topic, group, "*", _tagged("a", None, "b"), "a none b")


async def case_a_tag_in_any_script(nameserver: str, topic: str, group: str) -> None:
    await _check(nameserver, topic, group, "中文 || 🚀", _tagged("a", "中文", "🚀", "文"), "中文 🚀")


async def case_tags_with_one_hash_are_told_apart(nameserver: str, topic: str, group: str) -> None:
    wanted, other = COLLIDING
    await _check(nameserver, topic, group, wanted, _tagged(other, wanted, other, wanted), f"{wanted} {wanted}")


async def case_messages_that_are_not_wanted_are_passed(nameserver: str, topic: str, group: str) -> None:
    """They are not delivered again, and the offset moves past them."""
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        for _ in range(3):
            await send_numbered(producer, topic, range(20), tags="no")
            await producer.send(topic, b"yes", tags="yes")
        async with make_consumer(nameserver, group, {topic: "yes"}) as consumer:
            assert len(await read_messages(consumer, 3)) == 3
            (queue,) = consumer.queues
        async with make_consumer(nameserver, group, {topic: "yes"}) as consumer:
            await wait_for_queues(consumer, 1)
            assert consumer._member.list_offsets(topic) == {queue: 63}


async def case_sql_compares_numbers(nameserver: str, topic: str, group: str) -> None:
    sent = _with(small={"a": "1"}, large={"a": "11"}, none={}, text={"a": "x"}, more={"a": "99"})
    await _check(nameserver, topic, group, Sql("a > 10"), sent, "large more")


async def case_sql_compares_text(nameserver: str, topic: str, group: str) -> None:
    sent = _with(eu={"r": "eu"}, us={"r": "us"}, asia={"r": "asia"}, none={}, quoted={"r": "it's"})
    await _check(nameserver, topic, group, Sql("r IN ('eu', 'asia') OR r = 'it''s'"), sent, "eu asia quoted")


async def case_sql_combines(nameserver: str, topic: str, group: str) -> None:
    sent = _with(
        both={"a": "5", "b": "x"}, low={"a": "2", "b": "x"}, edge={"a": "3", "b": "x"}, none={"a": "5"}, c={"c": "1"}
    )
    wanted = Sql("(a BETWEEN 3 AND 7 AND b IS NOT NULL) OR c IS NOT NULL")
    await _check(nameserver, topic, group, wanted, sent, "both edge c")


async def case_sql_sees_tags(nameserver: str, topic: str, group: str) -> None:
    await _check(nameserver, topic, group, Sql("TAGS = 'b' OR TAGS IS NULL"), _tagged("a", "b", None, "c"), "b none")


async def case_sql_knows_booleans(nameserver: str, topic: str, group: str) -> None:
    sent = _with(yes={"on": "true"}, no={"on": "false"}, none={})
    await _check(nameserver, topic, group, Sql("on = TRUE"), sent, "yes")


async def case_wrong_sql_is_refused_at_the_start(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
    for wrong in ("a >", "a = NULL", "a in (1, 2)", "a > 'x'", "a between 5 and 1"):
        consumer = make_consumer(nameserver, group, {topic: Sql(wrong)})
        with pytest.raises(RequestRefused):
            await consumer.start()
        assert consumer.queues == []
    with pytest.raises(ConfigError):
        make_consumer(nameserver, group, {topic: Sql(" ")})


async def case_handlers_filter_too(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    tagged = Collector(consumer, f"{topic}-1", tags="a || b")
    sql = Collector(consumer, f"{topic}-2", tags=Sql("n >= 2"))
    async with Producer(nameserver, group=group) as producer:
        for number in (1, 2):
            await create_topic(producer, f"{topic}-{number}", 1)
        for tag in "abc":
            await producer.send(f"{topic}-1", tag.encode(), tags=tag)
        for number in range(4):
            await producer.send(f"{topic}-2", b"%d" % number, properties={"n": str(number)})
        async with consumer:
            assert await tagged.wait(2) == [b"a", b"b"]
            assert await sql.wait(2) == [b"2", b"3"]


async def case_groups_filter_each_for_themselves(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        for tag in ("a", "b", "a"):
            await producer.send(topic, tag.encode(), tags=tag, properties={"n": "1"})
    async with (
        make_consumer(nameserver, f"{group}-a", {topic: "a"}) as one,
        make_consumer(nameserver, f"{group}-b", {topic: "b"}) as two,
        make_consumer(nameserver, f"{group}-c", {topic: Sql("n = 1")}) as three,
    ):
        assert [message.body for message in await read_messages(one, 2)] == [b"a", b"a"]
        assert [message.body for message in await read_messages(two, 1)] == [b"b"]
        assert len(await read_messages(three, 3)) == 3
