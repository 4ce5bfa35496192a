"""Requests of accounts that have the right to send them, but whose contents lie.

Java's brokers believe most of these: a record inside a body, the offset of another half message, the client id of
another, the name of a producer group, a signature that an operator made for something else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._net.caller import Caller
from eruca._net.link import Handler
from eruca._testing.clock import VirtualClock
from eruca._wire import headers as h
from eruca._wire.bodies import ConsumerRunningInfo, GroupConfig, encode_json
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.command import make_request
from eruca._wire.frame import Command, encode_command
from eruca._wire.names import HALF_TOPIC, OP_HALF_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record, RecordView, encode_record, inspect_record
from eruca._wire.signature import ACCESS_KEY, SIGNATURE
from tests.accounts import ADMIN, describe, enable_accounts
from tests.integration.broker.conftest import MakePeer, excuse_new_files
from tests.integration.broker.delivery import Inbox, look, send_half, stored
from tests.integration.broker.peer import TIMEOUT_MS, Peer, find_port
from tests.integration.broker.replication.members import wait_until
from tests.security.guarded import SMALL, account

PAYMENTS, OWN, REPLIES = "Orders", "Own", "DefaultCluster_REPLY_TOPIC"
SHOP, EVIL = account("shop"), account("evil")
COMMIT, ROLLBACK = 8, 12
PRIVATE = b"what only the shop may read"
NEVER_MS = 3_600_000


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def access(tmp_path: Path) -> AccessOptions:
    """The shop has its topic, and somebody else another one."""
    return enable_accounts(
        tmp_path / "conf",
        describe(SHOP, topicPerms=[f"{PAYMENTS}=PUB|SUB", f"{REPLIES}=PUB"], groupPerms=["payers=SUB"]),
        describe(EVIL, topicPerms=[f"{OWN}=PUB|SUB", f"{REPLIES}=PUB"], groupPerms=["own-group=SUB"]),
    )


@pytest.fixture
async def broker(tmp_path: Path, access: AccessOptions, clock: VirtualClock) -> AsyncIterator[Broker]:
    """A broker with these accounts."""
    options = BrokerOptions(port=find_port(), transaction_check_interval_ms=NEVER_MS)
    broker = Broker(options, SMALL, tmp_path / "store", access=access, clock=clock)
    await broker.start()
    yield broker
    await broker.stop()


@pytest.fixture
async def make_peer() -> AsyncIterator[MakePeer]:
    """Connects clients, each with its own connection."""
    peers: list[Peer] = []

    def make(broker: Broker, **how: Any) -> Peer:
        peers.append(Peer(broker, **how))
        return peers[-1]

    yield make
    for peer in peers:
        await peer.close()


@pytest.fixture
async def shop(broker: Broker, make_peer: MakePeer) -> Peer:
    return make_peer(broker, credentials=SHOP)


@pytest.fixture
async def evil(broker: Broker, make_peer: MakePeer) -> Peer:
    return make_peer(broker, credentials=EVIL)


# --- records inside bodies --------------------------------------------------------------------------------------------


def find_body(broker: Broker, position: int) -> int:
    """Where the body of a message is."""
    view = broker.store.reader.view_record(position)
    assert view is not None
    found = inspect_record(view, 0, len(view))
    assert isinstance(found, RecordView)
    return position + found.body_at


async def plant(broker: Broker, peer: Peer, *, grow: int = 0, **fields: object) -> int:
    """Send a message whose body is a record; returns the position of that record.

    It says that its properties are `grow` bytes longer than what is there.
    """
    first = int((await peer.send(OWN, 0, b""))["msgId"][-16:], 16)
    position = broker.store.log.tail + find_body(broker, first) - first
    host = look(broker, first).store_host
    facts = {"topic": OWN, "body": b"x", "born_host": host, "store_host": host, "position": position, **fields}
    forged = bytearray(encode_record(Record(**facts)))  # type: ignore[arg-type]
    forged[:4] = (len(forged) + grow).to_bytes(4, "big")
    if grow:
        forged[-2:] = grow.to_bytes(2, "big")
    sent = int((await peer.send(OWN, 0, bytes(forged)))["msgId"][-16:], 16)
    assert find_body(broker, sent) == position
    return position


async def test_a_record_inside_a_body_does_not_show_what_comes_after_it(broker: Broker, shop: Peer, evil: Peer) -> None:
    forged = await plant(broker, evil, grow=2000)
    sent = await shop.send(PAYMENTS, 0, PRIVATE)
    code, remark = await evil.refused(RequestCode.VIEW_MESSAGE_BY_ID, h.ViewMessageHeader(forged))
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {forged}")
    # Positions of messages are what they were.
    real = int(sent["msgId"][-16:], 16)
    assert PRIVATE in (await shop.expect(RequestCode.VIEW_MESSAGE_BY_ID, h.ViewMessageHeader(real))).command.body
    refusal = await evil.refused(RequestCode.VIEW_MESSAGE_BY_ID, h.ViewMessageHeader(real))
    assert f"No default permission for topic:{PAYMENTS}" in refusal[1]


async def test_a_record_inside_a_body_cannot_be_given_back(broker: Broker, evil: Peer, make_peer: MakePeer) -> None:
    group = GroupConfig(group_name="own-group")
    await make_peer(broker, credentials=ADMIN).expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    forged = await plant(broker, evil, topic=PAYMENTS)
    for position in (forged, await plant(broker, evil)):
        header = h.SendBackHeader(offset=position, group="own-group", delay_level=0)
        assert (await evil.refused(RequestCode.CONSUMER_SEND_MSG_BACK, header))[0] == ResponseCode.SYSTEM_ERROR
    assert stored(broker, "SCHEDULE_TOPIC_XXXX", 2) == []


def decide(half: Record, decision: int, group: str, position: int | None = None) -> h.EndTransactionHeader:
    """The header of a decision."""
    return h.EndTransactionHeader(
        producer_group=group,
        half_offset=half.queue_offset,
        position=half.position if position is None else position,
        decision=decision,
        message_id="0" * 32,
        from_check=False,
    )


async def test_a_half_inside_a_body_does_not_decide_that_of_another(
    broker: Broker, shop: Peer, evil: Peer, clock: VirtualClock
) -> None:
    half = await send_half(shop, born_ms=clock.now_ms())
    properties = encode_properties({"REAL_TOPIC": OWN, "REAL_QID": "0", "PGROUP": "evil", "TRAN_MSG": "true"})
    forged = await plant(broker, evil, topic=HALF_TOPIC, queue_offset=half.queue_offset, properties=properties)
    header = decide(half, ROLLBACK, "evil", forged)
    refusal = await evil.refused(RequestCode.END_TRANSACTION, header)
    assert refusal == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    assert stored(broker, OP_HALF_TOPIC) == []
    await shop.expect(RequestCode.END_TRANSACTION, decide(half, COMMIT, "payers"))
    assert [message.body for message in stored(broker, PAYMENTS, 1)] == [b"pay"]


# --- properties that are the broker's ---------------------------------------------------------------------------------


async def test_a_half_that_claims_to_be_a_copy_does_not_decide_its_root(
    broker: Broker, shop: Peer, evil: Peer, clock: VirtualClock
) -> None:
    half = await send_half(shop, born_ms=clock.now_ms())
    root = {"TRAN_PREPARED_QUEUE_OFFSET": str(half.queue_offset)}
    lying = await send_half(evil, OWN, born_ms=clock.now_ms(), group="evil", **root)
    await evil.expect(RequestCode.END_TRANSACTION, decide(lying, ROLLBACK, "evil"))
    assert [op.body for op in stored(broker, OP_HALF_TOPIC)] == [b"%d" % lying.queue_offset]
    await shop.expect(RequestCode.END_TRANSACTION, decide(half, COMMIT, "payers"))
    assert [message.body for message in stored(broker, PAYMENTS, 1)] == [b"pay"]


async def test_a_retried_message_has_the_topic_from_which_it_was_consumed(
    broker: Broker, evil: Peer, make_peer: MakePeer
) -> None:
    group = GroupConfig(group_name="own-group")
    await make_peer(broker, credentials=ADMIN).expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    sent = await evil.send(OWN, 0, b"x", RETRY_TOPIC=PAYMENTS)
    header = h.SendBackHeader(offset=int(sent["msgId"][-16:], 16), group="own-group", delay_level=0)
    await evil.expect(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    (copy,) = stored(broker, "SCHEDULE_TOPIC_XXXX", 2)
    assert copy.get_property("RETRY_TOPIC") == OWN


# --- names of groups and clients --------------------------------------------------------------------------------------


async def test_only_those_who_may_publish_are_asked_about_a_half(
    broker: Broker, shop: Peer, make_peer: MakePeer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The question contains the whole message, and any account can call itself a producer of any group."""
    check = RequestCode.CHECK_TRANSACTION_STATE
    curious, entitled = Inbox(), Inbox()
    await make_peer(broker, handlers={check: curious.handle}, credentials=EVIL).produce("payers", "evil@1")
    await send_half(shop, born_ms=clock.now_ms())
    clock.advance(10_000)
    with caplog.at_level(logging.WARNING):
        await broker.checks.run_pass()
    assert f"no producer of group payers that may publish to {PAYMENTS} is connected" in caplog.text
    await make_peer(broker, handlers={check: entitled.handle}, credentials=SHOP).produce("payers", "shop@1")
    for _ in range(3):
        clock.advance(10_000)
        await broker.checks.run_pass()
        assert b"pay" in (await entitled.get()).body
    assert curious.commands.empty()


async def test_decisions_that_are_repeated_fill_no_log(
    broker: Broker, shop: Peer, caplog: pytest.LogCaptureFixture, clock: VirtualClock
) -> None:
    half = await send_half(shop, born_ms=clock.now_ms())
    decision = h.EndTransactionHeader("payers", half.queue_offset, half.position, COMMIT, "chosen" * 1000)
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            await shop.expect(RequestCode.END_TRANSACTION, decision)
    assert [text for text in caplog.messages if "chosen" in text] == []


async def test_halves_that_nobody_decides_fill_no_log(
    broker: Broker, evil: Peer, caplog: pytest.LogCaptureFixture, clock: VirtualClock
) -> None:
    """Neither a line for each, nor the group that their sender has chosen."""
    for number in range(20):
        await send_half(evil, OWN, born_ms=clock.now_ms(), group=f"{number:03}" + "p" * 15_000, PGROUP="p" * 15_000)
    await send_half(evil, OWN, born_ms=clock.now_ms(), PGROUP="another")
    with caplog.at_level(logging.INFO):
        for _ in range(17):
            clock.advance(61_000)
            await broker.checks.run_pass()
    assert broker.checks.given_up == 21
    given_up = [text for text in caplog.messages if "undecided for too long" in text]
    assert len(given_up) == 2 and "of group another was undecided" in given_up[1]
    assert max(map(len, caplog.messages)) < 400


def make_reply(client_id: str) -> h.SendMessageV2Header:
    """The header of a reply."""
    properties = encode_properties({"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": client_id}).decode()
    return h.SendMessageV2Header("repliers", REPLIES, "TBW102", 4, 0, 0, 1, 0, properties=properties)


async def test_replies_go_only_to_the_account_that_has_the_client_id(
    broker: Broker, shop: Peer, make_peer: MakePeer, clock: VirtualClock
) -> None:
    push = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    curious, entitled = Inbox(), Inbox()
    thief = make_peer(broker, handlers={push: curious.handle}, credentials=EVIL)
    asker = make_peer(broker, handlers={push: entitled.handle}, credentials=SHOP)
    await asker.produce("askers", "asker@1")
    taken = (ResponseCode.SYSTEM_ERROR, "the client id asker@1 is that of another account: use another instance name")

    async def steal() -> tuple[int, str]:
        with pytest.raises(AssertionError) as caught:
            await thief.produce("askers", "asker@1")
        return ResponseCode.SYSTEM_ERROR, str(caught.value).partition(f": {ResponseCode.SYSTEM_ERROR:d} ")[2]

    assert await steal() == taken
    # While the client reconnects, too.
    await asker.close()
    await wait_until(lambda: broker.clients.find_producer("asker@1") is None)
    assert await steal() == taken
    again = make_peer(broker, handlers={push: entitled.handle}, credentials=SHOP)
    await again.produce("askers", "asker@1")
    await shop.expect(RequestCode.SEND_REPLY_MESSAGE_V2, make_reply("asker@1"), PRIVATE)
    assert (await entitled.get()).body == PRIVATE
    assert curious.commands.empty()
    # Who does not come back has given it up.
    await again.close()
    await wait_until(lambda: broker.clients.find_producer("asker@1") is None)
    clock.advance(121_000)
    await thief.produce("askers", "asker@1")


async def test_a_message_to_consume_directly_goes_only_to_those_who_may_read_it(
    broker: Broker, shop: Peer, make_peer: MakePeer
) -> None:
    """Whoever may consume as a group can be a member of it, under any id, without a right for its topics."""
    directly, seen = RequestCode.CONSUME_MESSAGE_DIRECTLY, Inbox()
    thief = make_peer(broker, handlers={directly: seen.handle}, credentials=EVIL)
    await thief.join("own-group", "reader@1", OWN)
    sent = await shop.send(PAYMENTS, 0, PRIVATE)
    operator = make_peer(broker, credentials=ADMIN)
    header = h.ConsumeDirectlyHeader(consumer_group="own-group", client_id="reader@1", message_id=sent["msgId"])
    refused = await operator.ask(directly, header)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.remark == (f"the account of consumer <own-group> <reader@1> may not subscribe to topic {PAYMENTS}")
    assert seen.commands.empty()


# --- signatures -------------------------------------------------------------------------------------------------------


async def test_a_client_gets_no_signature_of_an_operator(broker: Broker, make_peer: MakePeer) -> None:
    """A signature covers neither the code nor the names of fields, so one that is passed on could be used again."""
    heard: asyncio.Queue[Command] = asyncio.Queue()

    def tell(link: object, command: Command) -> bytes:
        heard.put_nowait(command)
        return encode_command(command.answer(0, body=encode_json(ConsumerRunningInfo())))

    codes = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY
    handlers: dict[int, Handler] = dict.fromkeys(codes, tell)
    client = make_peer(broker, handlers=handlers, credentials=EVIL)
    await client.join("own-group", "evil@1", OWN)
    sent = await client.send(OWN, 0, b"x")
    operator = make_peer(broker, credentials=ADMIN)
    await operator.expect(codes[0], h.ConsumerRunningInfoHeader(consumer_group="own-group", client_id="evil@1"))
    header = h.ConsumeDirectlyHeader(consumer_group="own-group", client_id="evil@1", message_id=sent["msgId"])
    await operator.expect(codes[1], header)
    caller = Caller()
    for code in codes:
        passed_on = (await heard.get()).ext_dict()
        assert passed_on["consumerGroup"] == "own-group"
        assert ADMIN.access_key not in passed_on.values()
        assert not {ACCESS_KEY, SIGNATURE, "SecurityToken"} & set(passed_on), code
        replayed = make_request(RequestCode.GET_BROKER_CONFIG)
        replayed.ext = passed_on
        answer = await caller.call(broker.standing.address, replayed, TIMEOUT_MS)
        assert answer.code != ResponseCode.SUCCESS
    await caller.close()
