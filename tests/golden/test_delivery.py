"""A store of the Java broker continues under ours: delayed messages are delivered, undecided ones are checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._testing.clock import VirtualClock
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import CheckTransactionHeader, EndTransactionHeader, SendBackHeader
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from eruca._wire.record import Record, decode_record
from tests.golden.test_stores import golden_options
from tests.integration.broker.conftest import allow_new_files as _allow_new_files
from tests.integration.broker.delivery import Inbox, stored
from tests.integration.broker.peer import Peer, find_port
from tests.paths import unpack_golden

HOUR_MS = 3_600_000
NEVER_MS = 1000 * HOUR_MS
# What differs between two copies of a message: its position and its store time.
PLACE = {"position": 0, "queue_offset": 0, "store_timestamp": 0, "size": 0}

allow_new_files = _allow_new_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack_golden("clean", tmp_path)


@pytest.fixture
def clock() -> VirtualClock:
    # Shortly after the last message was stored.
    return VirtualClock(1_794_727_300_000)


@pytest.fixture
async def broker(root: Path, clock: VirtualClock) -> AsyncIterator[Broker]:
    options = BrokerOptions(
        port=find_port(), schedule_interval_ms=NEVER_MS // 1000, transaction_check_interval_ms=NEVER_MS
    )
    broker = Broker(options, await asyncio.to_thread(golden_options), root, clock=clock)
    await broker.start()
    yield broker
    await broker.stop()


def fields(message: Record, **more: object) -> dict[str, object]:
    """Everything a copy must share with its original; the order of properties is not guaranteed."""
    names = set(Record.__struct_fields__) - {"properties"} - PLACE.keys()
    return {name: getattr(message, name) for name in names} | {"properties": message.read_properties()} | more


async def test_pending_delays_are_delivered_as_java_would(broker: Broker, clock: VirtualClock) -> None:
    before = {queue: len(stored(broker, "G_Delay", queue)) for queue in range(4)}
    pending = stored(broker, SCHEDULE_TOPIC, 17)
    assert len(pending) == 10
    # Java's offsets are behind its last deliveries of the other levels; nothing of those comes twice.
    for level in range(1, 19):
        broker.schedule.deliver_due(level)
    assert {queue: len(stored(broker, "G_Delay", queue)) for queue in range(4)} == before
    clock.advance(2 * HOUR_MS)
    broker.schedule.deliver_due(18)
    delivered = [message for queue in range(4) for message in stored(broker, "G_Delay", queue)[before[queue] :]]
    assert len(delivered) == 10
    by_key = {message.get_property("KEYS"): message for message in delivered}
    for message in pending:
        copy = by_key[message.get_property("KEYS")]
        assert fields(copy) == fields(message, topic="G_Delay", queue_id=int(message.get_property("REAL_QID") or -1))


async def test_java_s_own_deliveries_look_the_same(broker: Broker) -> None:
    """The copies that Java made of delayed messages obey the rule that ours are tested for above."""
    originals = {message.get_property("KEYS"): message for message in stored(broker, SCHEDULE_TOPIC, 0)}
    copies = [message for queue in range(4) for message in stored(broker, "G_Delay", queue)]
    seen = 0
    for copy in copies:
        original = originals.get(copy.get_property("KEYS"))
        if original is not None:
            seen += 1
            assert fields(copy) == fields(original, topic=copy.topic, queue_id=copy.queue_id)
    assert seen == 20


async def test_undecided_halves_are_asked_about_and_decided(broker: Broker, clock: VirtualClock) -> None:
    inbox = Inbox()
    peer = Peer(broker, handlers={RequestCode.CHECK_TRANSACTION_STATE: inbox.handle})
    try:
        await peer.produce("G_TXG", "client@1")
        clock.advance(6000)
        await broker.checks.run_pass()
        before = sum(len(stored(broker, "G_Txn", queue)) for queue in range(4))
        keys = set()
        for _ in range(10):
            question = await inbox.get()
            asked = decode_record(question.body)
            keys.add(asked.get_property("KEYS"))
            header = question.decode_header(CheckTransactionHeader)
            end = EndTransactionHeader(
                producer_group="G_TXG",
                half_offset=header.half_offset,
                position=header.position,
                decision=8,
                message_id=header.message_id or "",
                from_check=True,
            )
            await peer.expect(RequestCode.END_TRANSACTION, end)
        assert keys == {f"T{number}" for number in range(100, 110)}
        assert inbox.commands.empty()
        assert sum(len(stored(broker, "G_Txn", queue)) for queue in range(4)) == before + 10
    finally:
        await peer.close()


async def test_java_s_committed_messages_obey_our_rule(broker: Broker) -> None:
    halves = {message.position: message for message in stored(broker, HALF_TOPIC)}
    committed = [message for queue in range(4) for message in stored(broker, "G_Txn", queue)]
    assert len(committed) >= 60
    for message in committed:
        half = halves[message.prepared_position]
        assert fields(message) == fields(
            half, topic="G_Txn", queue_id=message.queue_id, sys_flag=8, prepared_position=half.position
        )


async def test_a_message_given_back_is_stored_as_java_stored_it(broker: Broker) -> None:
    """Java's consumer sent these back with level 1; ours does the same, and the copies must be equal."""
    peer = Peer(broker)
    try:
        theirs = {
            message.get_property("KEYS"): message
            for message in stored(broker, SCHEDULE_TOPIC, 0)
            if message.get_property("RETRY_TOPIC") == "G_Retry"
        }
        assert len(theirs) == 5
        count = len(stored(broker, SCHEDULE_TOPIC, 0))
        originals = [message for queue in range(4) for message in stored(broker, "G_Retry", queue)]
        for message in originals:
            header = SendBackHeader(offset=message.position, group="G_CG_RETRY", delay_level=1, max_reconsume_times=16)
            await peer.expect(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        ours = stored(broker, SCHEDULE_TOPIC, 0)[count:]
        assert len(ours) == len(originals) == 5
        for copy in ours:
            assert fields(copy) == fields(theirs[copy.get_property("KEYS")])
        await check_dead_letters(broker, peer)
    finally:
        await peer.close()


async def check_dead_letters(broker: Broker, peer: Peer) -> None:
    retried = stored(broker, "%RETRY%G_CG_RETRY")[:5]
    theirs = {message.get_property("KEYS"): message for message in stored(broker, "%DLQ%G_CG_RETRY")}
    count = len(theirs)
    for message in retried:
        header = SendBackHeader(offset=message.position, group="G_CG_RETRY", delay_level=-1)
        answer = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == ResponseCode.SUCCESS
    ours = stored(broker, "%DLQ%G_CG_RETRY")[count:]
    assert len(ours) == count == 5
    for copy in ours:
        assert fields(copy) == fields(theirs[copy.get_property("KEYS")])
