"""SQL92 subscriptions with a real broker: non-matching messages never leave it, and offsets still advance."""

from __future__ import annotations

import pytest

from eruca._broker.app import Broker
from eruca._broker.pulling.subscriptions import PullFilters
from eruca._wire.bodies import CheckClientBody, SubscriptionData
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import PullMessageHeader
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import pull
from tests.integration.broker.peer import Peer


def ask_for(expression: str, offset: int = 0, flags: int = 4) -> PullMessageHeader:
    return PullMessageHeader(
        consumer_group="readers",
        topic="Orders",
        queue_id=0,
        queue_offset=offset,
        max_message_nums=32,
        sys_flag=flags,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription=expression,
        subscription_version=0,
        expression_type="SQL92",
    )


async def send_numbers(peer: Peer, count: int = 10) -> None:
    for number in range(count):
        await peer.send("Orders", body=b"%d" % number, number=str(number), TAGS="even" if number % 2 == 0 else "odd")


async def test_only_what_matches_is_sent(peer: Peer) -> None:
    await send_numbers(peer)
    messages = await pull(peer, "Orders", expression="number > 5 AND TAGS = 'even'", kind="SQL92")
    assert [message.body for message in messages] == [b"6", b"8"]


async def test_offsets_go_on_without_a_match(peer: Peer) -> None:
    await send_numbers(peer)
    answer = await peer.ask(RequestCode.PULL_MESSAGE, ask_for("number > 100"))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.header.next_begin_offset == 10
    assert answer.command.body == b""


async def test_a_bad_expression_is_refused_with_its_place(peer: Peer) -> None:
    await send_numbers(peer, 1)
    code, remark = await peer.refused(RequestCode.PULL_MESSAGE, ask_for("number >> 5"))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "at character 9 of" in remark


async def test_the_client_asks_before_it_subscribes(broker: Broker, peer: Peer) -> None:
    def body(expression: str) -> CheckClientBody:
        data = SubscriptionData(topic="Orders", sub_string=expression, expression_type="SQL92")
        return CheckClientBody(client_id="c", group="readers", subscription_data=data)

    check = RequestCode.CHECK_CLIENT_CONFIG
    await peer.expect(check, None, body("a > 5 or b is null"))
    code, remark = await peer.refused(check, None, body("a = null"))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "IS NULL" in remark


async def test_it_can_be_switched_off(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(property_filter=False))
    await send_numbers(peer, 1)
    code, remark = await peer.refused(RequestCode.PULL_MESSAGE, ask_for("number > 5"))
    assert code == ResponseCode.SYSTEM_ERROR
    assert "does not support" in remark


# -- memory ----------------------------------------------------------------------------------------------------------


def test_kept_filters_are_weighed_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._broker.pulling.subscriptions.FILTERS_BYTES_MAX", 2_000_000)
    filters = PullFilters()
    first = filters.get("TAG", "a || b")
    assert filters.get("TAG", "a || b") is first
    for number in range(100):
        large = filters.get("TAG", "||".join([f"{number}-{tag}" for tag in range(5000)]))
        assert large.weight > 500_000
        assert filters.weight <= 2_000_000
    assert filters.get("TAG", "a || b") is not first
    kept = filters.get("SQL92", "a > 1")
    assert filters.get("SQL92", "a > 1") is kept


async def test_an_endless_tag_expression_is_refused(peer: Peer) -> None:
    await send_numbers(peer, 1)
    header = ask_for("||".join([f"tag{number}" for number in range(20_000)]))
    header.expression_type = "TAG"
    code, remark = await peer.refused(RequestCode.PULL_MESSAGE, header)
    assert (code, "the maximum is 65536" in remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)
