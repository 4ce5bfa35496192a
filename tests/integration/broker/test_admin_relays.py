"""Requests relayed to a client through the broker, and their responses."""

from __future__ import annotations

import asyncio

import pytest

from eruca._broker.administering import relays
from eruca._broker.app import Broker
from eruca._ground.limits import JSON_BODY_BYTES_MAX
from eruca._net.link import Handler, Link
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    MessageQueue,
    decode_reset_offsets,
    encode_json,
)
from eruca._wire.codes import Language, RequestCode, ResponseCode
from eruca._wire.frame import Command, encode_command
from eruca._wire.headers import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ResetOffsetHeader,
)
from eruca._wire.record import decode_record
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer
from tests.unit.net.rawpeer import turn_until


def queue(number: int) -> MessageQueue:
    return MessageQueue("broker-a", number, "T")


class Client:
    """A client that records the broker's requests, and answers with what it was given."""

    def __init__(self, body: bytes = b"", code: int = 0) -> None:
        self.asked: asyncio.Queue[Command] = asyncio.Queue()
        self.body = body
        self.code = code
        self.silent = False

    def handlers(self, *codes: int) -> dict[int, Handler]:
        return dict.fromkeys(codes, self.handle)

    def handle(self, link: Link, command: Command) -> bytes | None:
        self.asked.put_nowait(command)
        if self.silent:
            return None
        return encode_command(command.answer(self.code, body=self.body, remark="from the client"))


# -- resetting offsets -------------------------------------------------------------------------------------------------


async def prepare_topic(broker: Broker, peer: Peer, clock: VirtualClock) -> list[int]:
    """Five messages, a second apart, in one of two queues; the group has read four."""
    await peer.make_topic("T", 2)
    times = []
    for _ in range(5):
        clock.advance(1000)
        times.append(clock.now_ms())
        await peer.send("T", 0)
    broker.offsets.put("G", "T", 0, 4)
    broker.offsets.put("G", "T", 1, 0)
    return times


def reset(timestamp: int, *, force: bool = False, topic: str = "T", group: str = "G") -> ResetOffsetHeader:
    return ResetOffsetHeader(topic=topic, group=group, timestamp=timestamp, is_force=force)


async def test_members_are_told_their_new_offsets(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    client = Client()
    peer = make_peer(broker, handlers=client.handlers(RequestCode.RESET_CONSUMER_CLIENT_OFFSET))
    times = await prepare_topic(broker, peer, clock)
    await peer.join("G", "me", "T")
    answer = await peer.expect(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(times[1]))
    assert answer.body.offset_table == {queue(0): 1, queue(1): 0}
    assert (answer.remark, answer.ext) == ("not set any response code", None)
    told = await client.asked.get()
    assert told.is_oneway
    assert told.ext_dict() == {"topic": "T", "group": "G", "timestamp": str(times[1]), "isForce": "false"}
    assert decode_reset_offsets(told.body) == answer.body
    assert told.body.startswith(b'{"offsetTable":{{')
    # Their commits count, not the broker's wish.
    assert broker.offsets.get("G", "T", 0) == 4


async def test_a_group_goes_ahead_only_by_force(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    client = Client()
    peer = make_peer(broker, handlers=client.handlers(RequestCode.RESET_CONSUMER_CLIENT_OFFSET))
    await prepare_topic(broker, peer, clock)
    await peer.join("G", "me", "T")
    to_end = await peer.expect(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(-1))
    assert to_end.body.offset_table[queue(0)] == 4
    forced = await peer.expect(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(-1, force=True))
    assert forced.body.offset_table[queue(0)] == 5


async def test_a_cpp_tool_makes_a_list_of_it(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    client = Client()
    peer = make_peer(broker, handlers=client.handlers(RequestCode.RESET_CONSUMER_CLIENT_OFFSET))
    times = await prepare_topic(broker, peer, clock)
    await peer.join("G", "me", "T")
    await peer.expect(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset(times[1]), language=Language.CPP)
    told = await client.asked.get()
    assert told.body.startswith(b'{"offsetTable":[{"brokerName":"broker-a","offset":1,"queueId":0,"topic":"T"}')


async def test_offsets_that_cannot_be_reset(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await prepare_topic(broker, peer, clock)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    assert await peer.refused(code, reset(0, topic="Nowhere")) == (
        ResponseCode.SYSTEM_ERROR,
        "[reset-offset] reset offset failed, no topic in this broker. topic=Nowhere",
    )
    assert await peer.refused(code, reset(0, group="Nobody")) == (
        ResponseCode.SYSTEM_ERROR,
        "THe consumer group <Nobody> not exist",
    )
    assert await peer.refused(code, reset(0)) == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: 0",
    )
    await peer.join("G", "old", "T", version=27)
    refused, remark = await peer.refused(code, reset(0))
    assert (refused, remark) == (ResponseCode.SYSTEM_ERROR, "the client does not support this feature. version=27")


# -- asking for offsets ------------------------------------------------------------------------------------------------


def status_body(offset: int) -> bytes:
    return encode_json(ConsumerStatusBody(message_queue_table={queue(0): offset}))


async def test_offsets_of_clients_are_gathered(broker: Broker, make_peer: MakePeer) -> None:
    clients = [Client(status_body(7)), Client(status_body(8)), Client(code=1)]
    for number, client in enumerate(clients):
        member = make_peer(broker, handlers=client.handlers(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT))
        await member.join("G", f"client{number}", "T")
    peer = make_peer(broker)
    header = ConsumerStatusHeader(topic="T", group="G", client_address="")
    answer = await peer.expect(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    assert answer.body.consumer_table == {"client0": {queue(0): 7}, "client1": {queue(0): 8}}
    asked = await clients[0].asked.get()
    assert asked.ext_dict() == {"topic": "T", "group": "G"}
    one = ConsumerStatusHeader(topic="T", group="G", client_address="client1")
    answer = await peer.expect(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, one)
    assert list(answer.body.consumer_table) == ["client1"]
    nobody = ConsumerStatusHeader(topic="T", group="H")
    assert await peer.refused(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, nobody) == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [H]",
    )


async def test_few_members_are_asked_for_offsets_at_a_time(broker: Broker, make_peer: MakePeer) -> None:
    """One request must not become thousands of answers that wait in memory."""
    asked: list[Command] = []
    links: list[Link] = []

    def wait(link: Link, command: Command) -> None:
        asked.append(command)
        links.append(link)

    count = 2 * relays._ASKED_AT_ONCE
    for number in range(count):
        member = make_peer(broker, handlers={RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: wait})
        await member.join("G", f"client{number}", "T")
    header = ConsumerStatusHeader(topic="T", group="G", client_address="")
    question = asyncio.create_task(make_peer(broker).expect(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header))
    await turn_until(lambda: len(asked) == relays._ASKED_AT_ONCE)
    # What is asked next waits for an answer.
    await make_peer(broker).expect(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert len(asked) == relays._ASKED_AT_ONCE
    answered = 0
    while not question.done():
        for link, command in zip(links[answered:], asked[answered:], strict=True):
            answered += 1
            link.send(encode_command(command.answer(0, body=status_body(answered))))
        await asyncio.sleep(0)
    assert len((await question).body.consumer_table) == count


async def test_offsets_of_members_are_bounded(broker: Broker, make_peer: MakePeer) -> None:
    """Alone, an answer is left out if it is too large; together, they are refused."""
    padding = b'{"messageQueueTable":{},"padding":"%s"}'
    bodies = [padding % (b"x" * JSON_BODY_BYTES_MAX), status_body(7)]
    for number, body in enumerate(bodies):
        client = Client(body)
        member = make_peer(broker, handlers=client.handlers(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT))
        await member.join("G", f"client{number}", "T")
    code, header = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusHeader(topic="T", group="G")
    answer = await make_peer(broker).expect(code, header)
    assert answer.body.consumer_table == {"client1": {queue(0): 7}}
    for number in range(3):
        client = Client(padding % (b"x" * (JSON_BODY_BYTES_MAX // 2)))
        member = make_peer(broker, handlers=client.handlers(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT))
        await member.join("G", f"large{number}", "T")
    assert await make_peer(broker).refused(code, header) == (
        ResponseCode.SYSTEM_ERROR,
        f"the offsets of the members have more than {JSON_BODY_BYTES_MAX} bytes: ask for one member",
    )


# -- relays ------------------------------------------------------------------------------------------------------------


async def test_a_consumer_is_asked_what_it_does(broker: Broker, make_peer: MakePeer) -> None:
    info = ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"})
    client = Client(encode_json(info))
    member = make_peer(broker, handlers=client.handlers(RequestCode.GET_CONSUMER_RUNNING_INFO))
    await member.join("G", "me", "T")
    header = ConsumerRunningInfoHeader(consumer_group="G", client_id="me", jstack_enable=True)
    answer = await make_peer(broker).expect(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert answer.body == info
    assert (answer.remark, answer.ext) == ("from the client", None)
    asked = await client.asked.get()
    assert asked.ext_dict() == {"consumerGroup": "G", "clientId": "me", "jstackEnable": "true"}
    assert not asked.is_oneway


async def test_a_client_consumes_one_message(broker: Broker, make_peer: MakePeer) -> None:
    client = Client(encode_json(ConsumeDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS)))
    member = make_peer(broker, handlers=client.handlers(RequestCode.CONSUME_MESSAGE_DIRECTLY))
    await member.join("G", "me", "T")
    sent = await member.send("T", 0, b"again")
    header = ConsumeDirectlyHeader(consumer_group="G", client_id="me", message_id=sent["msgId"])
    answer = await make_peer(broker).expect(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert answer.body.consume_result is ConsumeResult.CR_SUCCESS
    asked = await client.asked.get()
    assert decode_record(asked.body).body == b"again"
    assert asked.ext_dict()["brokerName"] == "broker-a"
    for message_id in ("no id", sent["msgId"][:-2] + "01", None):
        bad = ConsumeDirectlyHeader(consumer_group="G", client_id="me", message_id=message_id)
        assert (await member.refused(RequestCode.CONSUME_MESSAGE_DIRECTLY, bad))[0] == ResponseCode.SYSTEM_ERROR


async def test_clients_that_cannot_be_asked(broker: Broker, make_peer: MakePeer) -> None:
    peer = make_peer(broker)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    header = ConsumerRunningInfoHeader(consumer_group="G", client_id="me")
    assert await peer.refused(code, header) == (ResponseCode.SYSTEM_ERROR, "The Consumer <G> <me> not online")
    await peer.join("G", "me", "T", version=61)
    assert "too low to finish" in (await peer.refused(code, header))[1]


async def test_a_client_that_does_not_answer_times_out(
    broker: Broker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    client.silent = True
    member = make_peer(broker, handlers=client.handlers(RequestCode.GET_CONSUMER_RUNNING_INFO))
    await member.join("G", "me", "T")
    monkeypatch.setattr(relays, "RELAY_S", 0.01)  # found by the next scan of the server
    header = ConsumerRunningInfoHeader(consumer_group="G", client_id="me")
    code, remark = await make_peer(broker).refused(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert remark.startswith("consumer <G> <me> Timeout: ")


async def test_a_client_that_leaves_while_it_is_asked(broker: Broker, make_peer: MakePeer) -> None:
    client = Client()
    client.silent = True
    member = make_peer(broker, handlers=client.handlers(RequestCode.GET_CONSUMER_RUNNING_INFO))
    await member.join("G", "me", "T")
    header = ConsumerRunningInfoHeader(consumer_group="G", client_id="me")
    asking = asyncio.create_task(make_peer(broker).refused(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
    await client.asked.get()
    await member.close()
    code, remark = await asking
    assert (code, remark.startswith("invoke consumer <G> <me> Exception: ")) == (ResponseCode.SYSTEM_ERROR, True)
