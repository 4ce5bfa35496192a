"""Held pulls: woken only by what they wait for, and always answered in the end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._observe.metrics import SERVER
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import PullMessageAnswerHeader
from eruca._wire.record import Record, decode_records
from tests.integration.broker.conftest import MakeBroker
from tests.integration.broker.peer import Peer
from tests.integration.broker.requests import COMMIT, EXPRESSION, HOLD, pull_header
from tests.unit.net.rawpeer import RawPeer, open_peer, turn_until

TURNS_MAX = 10


class FarTime:
    """A loop time of our own, so that no test waits for a deadline."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._patch = monkeypatch

    def scan(self, broker: Broker, *, ms_ahead: int, unmatched: bool = False) -> None:
        """Look at the held pulls as if this much time had passed."""
        now = self._loop.time() + ms_ahead / 1000
        with self._patch.context() as patch:
            patch.setattr(self._loop, "time", lambda: now)
            for _ in broker.pull.holds.scan(unmatched=unmatched):
                pass


@pytest.fixture
async def quiet_broker(make_broker: MakeBroker) -> Broker:
    """A broker that looks at its held pulls only when a test does, for as long as the test runs."""
    broker = await make_broker(hold_scan_ms=3_600_000)
    broker.topics.create_internal("T", 4)
    return broker


@pytest.fixture
async def raw(quiet_broker: Broker) -> AsyncIterator[RawPeer]:
    async with open_peer(quiet_broker.standing.port) as peer:
        yield peer


@pytest.fixture
async def far(monkeypatch: pytest.MonkeyPatch) -> FarTime:
    return FarTime(monkeypatch)


async def hold(broker: Broker, raw: RawPeer, opaque: int = 1, **fields: Any) -> None:
    """Pull where nothing is, and wait until the pull is held."""
    before = len(broker.pull.holds)
    header = pull_header(**{"sys_flag": EXPRESSION | HOLD, "suspend_timeout_ms": 3_600_000} | fields)
    raw.write(make_request(RequestCode.PULL_MESSAGE, header, opaque=opaque))
    await turn_until(lambda: len(broker.pull.holds) == before + 1)


def append(broker: Broker, body: bytes = b"new", *, queue_id: int = 0, tags: str = "") -> None:
    """Put a message into the store, in this turn of the loop."""
    properties = f"TAGS\x01{tags}\x02".encode() if tags else b""
    broker.store.append(
        Record(
            topic="T",
            queue_id=queue_id,
            body=body,
            properties=properties,
            born_host=broker.standing.store_host,
            store_host=broker.standing.store_host,
        )
    )


def next_offset(answer: Command) -> int:
    return answer.decode_header(PullMessageAnswerHeader).next_begin_offset


async def test_a_message_wakes_a_held_pull_soon_and_behind_its_sender(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw, opaque=77)
    append(quiet_broker)
    turns = 0
    while len(quiet_broker.pull.holds) and turns < TURNS_MAX:
        turns += 1
        await asyncio.sleep(0)
    # The sender's response is written after the first iteration, the chunk for slaves after the second.
    assert 2 < turns <= 4
    answer = await raw.read()
    assert (answer.opaque, answer.code, answer.remark, next_offset(answer)) == (77, 0, "FOUND", 1)
    assert [message.body for message in decode_records(answer.body)] == [b"new"]


async def test_every_pull_of_a_queue_is_woken_and_no_other(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw, opaque=1)
    await hold(quiet_broker, raw, opaque=2, consumer_group="others")
    await hold(quiet_broker, raw, opaque=3, queue_id=1)
    append(quiet_broker)
    assert {(await raw.read()).opaque, (await raw.read()).opaque} == {1, 2}
    assert len(quiet_broker.pull.holds) == 1
    append(quiet_broker, queue_id=1)
    assert (await raw.read()).opaque == 3


async def test_messages_of_one_turn_wake_by_the_first_that_is_wanted(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw, opaque=1)
    await hold(quiet_broker, raw, opaque=2, consumer_group="pickers", subscription="b")
    for tags in ("a", "b", "a"):
        append(quiet_broker, tags=tags)
    answers = {answer.opaque: answer for answer in (await raw.read(), await raw.read())}
    assert {opaque: next_offset(answer) for opaque, answer in answers.items()} == {1: 3, 2: 3}
    assert len(decode_records(answers[1].body)) == 3
    assert len(decode_records(answers[2].body)) == 1


async def test_a_queue_that_goes_before_its_pulls_are_told_disturbs_nobody(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw, opaque=1)
    append(quiet_broker)
    quiet_broker.store.detach_topic("T")
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
    assert len(quiet_broker.pull.holds) == 1


async def test_a_pull_without_the_wish_to_wait_is_answered(quiet_broker: Broker, raw: RawPeer) -> None:
    answer = await raw.ask(make_request(RequestCode.PULL_MESSAGE, pull_header(), opaque=1))
    assert (answer.code, len(quiet_broker.pull.holds)) == (ResponseCode.PULL_NOT_FOUND, 0)


async def test_only_an_empty_queue_holds(quiet_broker: Broker, raw: RawPeer) -> None:
    append(quiet_broker, tags="a")
    for offset, expression, code in (
        (0, "b", ResponseCode.PULL_RETRY_IMMEDIATELY),
        (9, "*", ResponseCode.PULL_OFFSET_MOVED),
        (0, "a", ResponseCode.SUCCESS),
    ):
        header = pull_header(sys_flag=EXPRESSION | HOLD, queue_offset=offset, subscription=expression)
        assert (await raw.ask(make_request(RequestCode.PULL_MESSAGE, header, opaque=1))).code == code


async def test_a_tag_filter_is_woken_only_by_its_tags(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw, subscription="b || c")
    append(quiet_broker, b"no", tags="a")
    append(quiet_broker, b"no")
    assert len(quiet_broker.pull.holds) == 1
    append(quiet_broker, b"yes", tags="c")
    answer = await raw.read()
    assert [message.body for message in decode_records(answer.body)] == [b"yes"]
    assert next_offset(answer) == 3


async def test_an_sql_filter_goes_on_waiting_when_nothing_matches(quiet_broker: Broker, raw: RawPeer) -> None:
    append(quiet_broker)
    await hold(quiet_broker, raw, expression_type="SQL92", subscription="TAGS = 'b'", queue_offset=1)
    append(quiet_broker, b"yes", tags="b")
    assert [message.body for message in decode_records((await raw.read()).body)] == [b"yes"]


async def test_a_queue_that_grew_without_a_match_is_told_at_a_scan(
    quiet_broker: Broker, raw: RawPeer, far: FarTime
) -> None:
    await hold(quiet_broker, raw, subscription="b")
    append(quiet_broker, tags="a")
    far.scan(quiet_broker, ms_ahead=0)
    assert len(quiet_broker.pull.holds) == 1
    far.scan(quiet_broker, ms_ahead=0, unmatched=True)
    answer = await raw.read()
    assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)
    assert len(quiet_broker.pull.holds) == 0


async def test_a_queue_that_did_not_grow_is_left_alone_at_a_scan(
    quiet_broker: Broker, raw: RawPeer, far: FarTime
) -> None:
    await hold(quiet_broker, raw)
    far.scan(quiet_broker, ms_ahead=0, unmatched=True)
    assert len(quiet_broker.pull.holds) == 1


@pytest.mark.parametrize("grew", [False, True])
async def test_a_pull_is_held_as_long_as_its_client_says(
    quiet_broker: Broker, raw: RawPeer, far: FarTime, grew: bool
) -> None:
    await hold(quiet_broker, raw, suspend_timeout_ms=900_000, subscription="b")
    if grew:
        append(quiet_broker, tags="a")
    far.scan(quiet_broker, ms_ahead=880_000)
    assert len(quiet_broker.pull.holds) == 1
    far.scan(quiet_broker, ms_ahead=901_000)
    answer = await raw.read()
    expected = (ResponseCode.PULL_RETRY_IMMEDIATELY, 1) if grew else (ResponseCode.PULL_NOT_FOUND, 0)
    assert (answer.code, next_offset(answer)) == expected


async def test_a_pull_held_again_keeps_its_deadline(quiet_broker: Broker, raw: RawPeer, far: FarTime) -> None:
    await hold(quiet_broker, raw, suspend_timeout_ms=900_000)
    append(quiet_broker, b"gone")
    assert (await raw.read()).code == ResponseCode.SUCCESS
    await hold(quiet_broker, raw, suspend_timeout_ms=900_000, queue_offset=1)
    far.scan(quiet_broker, ms_ahead=600_000, unmatched=True)
    far.scan(quiet_broker, ms_ahead=901_000)
    assert (await raw.read()).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("wait_ms", [0, -1, -(2**63)])
async def test_no_time_to_wait_is_over_at_the_first_scan(
    quiet_broker: Broker, raw: RawPeer, far: FarTime, wait_ms: int
) -> None:
    header = pull_header(sys_flag=EXPRESSION | HOLD, suspend_timeout_ms=wait_ms)
    raw.write(make_request(RequestCode.PULL_MESSAGE, header, opaque=1))
    # The broker's own timer is enough here.
    assert (await raw.read()).code == ResponseCode.PULL_NOT_FOUND


async def test_the_longest_time_to_wait_is_taken(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw, suspend_timeout_ms=2**63 - 1)
    append(quiet_broker)
    assert (await raw.read()).code == ResponseCode.SUCCESS


async def test_without_long_polling_the_broker_says_how_long(quiet_broker: Broker, raw: RawPeer, far: FarTime) -> None:
    quiet_broker.live.change(long_polling=False)
    quiet_broker.live.change(short_polling_ms=500_000)
    await hold(quiet_broker, raw, suspend_timeout_ms=3_600_000)
    far.scan(quiet_broker, ms_ahead=480_000)
    assert len(quiet_broker.pull.holds) == 1
    far.scan(quiet_broker, ms_ahead=501_000)
    assert (await raw.read()).code == ResponseCode.PULL_NOT_FOUND


async def test_a_held_pull_commits_once_when_it_comes(quiet_broker: Broker, raw: RawPeer) -> None:
    offsets = quiet_broker.offsets
    await hold(quiet_broker, raw, sys_flag=EXPRESSION | HOLD | COMMIT, commit_offset=5)
    assert offsets.get("readers", "T", 0) == 5
    offsets.put("readers", "T", 0, 9)
    append(quiet_broker)
    await raw.read()
    assert offsets.get("readers", "T", 0) == 9


async def test_a_held_pull_is_checked_again_when_it_is_woken(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw)
    quiet_broker.live.change(permission=2)
    append(quiet_broker)
    assert (await raw.read()).code == ResponseCode.NO_PERMISSION


async def test_a_closed_connection_takes_its_pulls_along(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw)
    async with open_peer(quiet_broker.standing.port) as other:
        await hold(quiet_broker, other)
        await hold(quiet_broker, other, queue_id=1)
    await turn_until(lambda: len(quiet_broker.pull.holds) == 1)
    append(quiet_broker)
    assert (await raw.read()).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("bound", "key"), [("holds_of_connection_max", "maxHeldPullsPerConnection"), ("holds_max", "maxHeldPulls")]
)
async def test_one_pull_too_many_is_answered_at_once(
    quiet_broker: Broker, raw: RawPeer, caplog: pytest.LogCaptureFixture, bound: str, key: str
) -> None:
    quiet_broker.live.change(**{bound: 3})
    refused = f'eruca_server_refused_total{{option="{key}"}}'
    before = SERVER.snapshot().get(refused, 0)
    for opaque in (1, 2, 3):
        await hold(quiet_broker, raw, opaque=opaque)
    header = pull_header(sys_flag=EXPRESSION | HOLD)
    answer = await raw.ask(make_request(RequestCode.PULL_MESSAGE, header, opaque=4))
    assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_NOT_FOUND, 0)
    async with open_peer(quiet_broker.standing.port) as other:
        if bound == "holds_max":
            answer = await other.ask(make_request(RequestCode.PULL_MESSAGE, header, opaque=5))
            assert answer.code == ResponseCode.PULL_NOT_FOUND
        else:  # others have their own limit
            await hold(quiet_broker, other, opaque=5)
    await turn_until(lambda: len(quiet_broker.pull.holds) == 3)
    append(quiet_broker)
    assert [(await raw.read()).code for _ in range(3)] == [ResponseCode.SUCCESS] * 3
    assert SERVER.snapshot()[refused] > before
    assert f"a pull that is not held: 3 are held for it, 3 in all (limit: {key})" in caplog.text
    await hold(quiet_broker, raw, opaque=6, queue_offset=1)  # there is room again
    assert len(quiet_broker.pull.holds) == 1


async def test_a_broker_that_stops_answers_everyone(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw, opaque=1)
    await hold(quiet_broker, raw, opaque=2, queue_id=3)
    await quiet_broker.stop()
    answers = [await raw.read(), await raw.read()]
    assert {answer.opaque for answer in answers} == {1, 2}
    assert {answer.code for answer in answers} == {ResponseCode.PULL_NOT_FOUND}


async def test_a_send_wakes_a_consumer_of_another_connection(quiet_broker: Broker, raw: RawPeer) -> None:
    await hold(quiet_broker, raw)
    sender = Peer(quiet_broker)
    try:
        await sender.send("T", body=b"hello")
    finally:
        await sender.close()
    assert [message.body for message in decode_records((await raw.read()).body)] == [b"hello"]


# -- budgets and turns -----------------------------------------------------------------------------------------------


async def test_pulls_of_a_peer_that_does_not_read_wait_until_it_does(quiet_broker: Broker, raw: RawPeer) -> None:
    for opaque in (1, 2, 3):
        await hold(quiet_broker, raw, opaque=opaque)
    (link,) = [link for server in quiet_broker.ports.servers for link in server.links]
    link.pause_writing()
    append(quiet_broker)
    async with open_peer(quiet_broker.standing.port) as other:  # others are served meanwhile
        answer = await other.ask(make_request(RequestCode.PULL_MESSAGE, pull_header(), opaque=9))
        assert answer.code == ResponseCode.SUCCESS
    assert len(quiet_broker.pull.holds) == 3
    link.resume_writing()
    assert {(await raw.read()).opaque for _ in range(3)} == {1, 2, 3}
    assert (len(quiet_broker.pull.holds), quiet_broker.pull.holds.weight) == (0, 0)


async def test_pulls_that_wait_for_their_peer_go_with_its_connection(quiet_broker: Broker) -> None:
    async with open_peer(quiet_broker.standing.port) as gone:
        await hold(quiet_broker, gone, opaque=1)
        (link,) = [link for server in quiet_broker.ports.servers for link in server.links]
        link.pause_writing()
        append(quiet_broker)
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
        assert len(quiet_broker.pull.holds) == 1
        link.abort()
        await turn_until(lambda: len(quiet_broker.pull.holds) == 0)
    assert quiet_broker.pull.holds.weight == 0


async def test_pulls_of_a_closed_connection_are_forgotten_in_slices(
    quiet_broker: Broker, raw: RawPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody counts or answers them, whether they are still in their queue or not."""
    monkeypatch.setattr("eruca._broker.pulling.hold.SLICE_SECONDS", 0)
    holds = quiet_broker.pull.holds
    await hold(quiet_broker, raw, opaque=100)
    async with open_peer(quiet_broker.standing.port) as gone:
        for opaque in range(20):
            await hold(quiet_broker, gone, opaque=opaque)
    await turn_until(lambda: len(holds) == 1)
    assert len(holds.by_queue["T", 0]) > 10
    append(quiet_broker)
    assert (await raw.read()).opaque == 100
    await turn_until(lambda: not holds._gone)
    assert (len(holds), holds.weight, holds.by_queue) == (0, 0, {})


async def test_a_broker_stops_although_pulls_of_closed_connections_are_left(
    quiet_broker: Broker, raw: RawPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca._broker.pulling.hold.SLICE_SECONDS", 0)
    await hold(quiet_broker, raw, opaque=1)
    async with open_peer(quiet_broker.standing.port) as gone:
        for opaque in range(50):
            await hold(quiet_broker, gone, opaque=opaque)
        port = gone.writer.get_extra_info("sockname")[1]
        links = [link for server in quiet_broker.ports.servers for link in server.links]
        (link,) = [link for link in links if link.peer_host[1] == port]
        quiet_broker.pull.holds.drop_link(link)
        quiet_broker.pull.holds.release_all()
        assert (await raw.read()).code == ResponseCode.PULL_NOT_FOUND
        assert len(quiet_broker.pull.holds) == 0


async def test_many_that_wake_at_once_are_answered_in_slices(
    quiet_broker: Broker, raw: RawPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca._broker.pulling.hold.SLICE_SECONDS", 0)
    for opaque in range(20):
        await hold(quiet_broker, raw, opaque=opaque)
    append(quiet_broker)
    left = {len(quiet_broker.pull.holds)}
    while len(quiet_broker.pull.holds):
        await asyncio.sleep(0)
        left.add(len(quiet_broker.pull.holds))
    assert left == set(range(21))  # one a turn, since a slice is over at once
    assert [(await raw.read()).opaque for _ in range(20)] == list(range(20))


@pytest.mark.parametrize("bound", ["holds_of_connection_bytes_max", "holds_bytes_max"])
async def test_held_pulls_are_weighed(quiet_broker: Broker, raw: RawPeer, bound: str) -> None:
    quiet_broker.live.change(**{bound: 100_000})
    await hold(quiet_broker, raw, opaque=1, subscription="a" * 50_000)
    assert quiet_broker.pull.holds.weight > 50_000
    header = pull_header(sys_flag=EXPRESSION | HOLD, subscription="b" * 50_000)
    answer = await raw.ask(make_request(RequestCode.PULL_MESSAGE, header, opaque=2))
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    await hold(quiet_broker, raw, opaque=3)  # a small one has room
    (parked,) = [parked for parked in quiet_broker.pull.holds.by_queue["T", 0] if parked.command.opaque == 3]
    assert parked.command.ext is None


async def test_the_garbage_collector_does_not_look_at_held_pulls(quiet_broker: Broker, raw: RawPeer) -> None:
    """It looks at all objects it knows at once: 150,000 pulls stopped the broker for 0.1 s."""
    await hold(quiet_broker, raw)
    (held,) = quiet_broker.pull.holds.by_queue["T", 0]
    assert [part for part in (held, held.command, held.header) if gc.is_tracked(part)] == []


async def test_a_held_pull_counts_as_a_miss_now_and_when_it_ends(
    quiet_broker: Broker, raw: RawPeer, far: FarTime
) -> None:
    stats = quiet_broker.stats
    await hold(quiet_broker, raw)
    assert stats.missed == 1
    far.scan(quiet_broker, ms_ahead=3_600_001)
    assert (await raw.read()).code == ResponseCode.PULL_NOT_FOUND
    assert stats.missed == 2
