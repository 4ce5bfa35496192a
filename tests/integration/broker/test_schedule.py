"""Delayed messages with a real broker: never early, across restarts, and as Java stores them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._core.schedule import RETRY_MS
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.codes import RequestCode
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import pull, stored
from tests.patience import PATIENCE_S

# So long that the broker's own timer does not interfere with a test that delivers by hand.
NEVER_MS = 3_600_000
SECONDS_MAX = 60


def append_delayed(
    broker: Broker, level: int = 1, topic: str = "Orders", queue: str = "0", body: bytes = b"x"
) -> Record:
    """Put a message straight into the delay topic."""
    properties = {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": queue}
    return broker.store.append(
        Record(topic=SCHEDULE_TOPIC, queue_id=level - 1, body=body, properties=encode_properties(properties))
    )


async def test_a_message_comes_when_it_is_due_and_not_a_moment_before(
    make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    peer = make_peer(broker)
    await peer.send("Orders", 2, b"later", DELAY="2", TAGS="TagA", WAIT="true", USER="me")
    (waiting,) = stored(broker, SCHEDULE_TOPIC, 1)
    clock.advance(4999)
    assert broker.schedule.deliver_due(2) == 1
    assert stored(broker, "Orders", 2) == []
    clock.advance(1)
    broker.schedule.deliver_due(2)
    (message,) = stored(broker, "Orders", 2)
    # Everything is as it was stored first, the marks of the delay included; only place and store time are new.
    assert message.properties == waiting.properties
    assert message.read_properties() == {
        "DELAY": "2",
        "TAGS": "TagA",
        "WAIT": "true",
        "USER": "me",
        "CLUSTER": "DefaultCluster",
        "REAL_TOPIC": "Orders",
        "REAL_QID": "2",
    }
    for name in ("body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host", "reconsume_times"):
        assert getattr(message, name) == getattr(waiting, name), name
    assert message.store_timestamp == waiting.store_timestamp + 5000
    assert [found.position for found in await pull(peer, "Orders", 2, expression="TagA")] == [message.position]
    broker.schedule.deliver_due(2)
    assert len(stored(broker, "Orders", 2)) == 1


async def test_the_timer_wakes_a_waiting_consumer(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=5)
    producer, consumer = make_peer(broker), make_peer(broker)
    await producer.send("Orders", body=b"later", DELAY="1")
    waiting = asyncio.create_task(pull(consumer, "Orders"))
    clock.advance(1000)
    (message,) = await waiting
    assert message.body == b"later"


async def test_with_the_machine_s_own_clock_it_is_hardly_late(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker()
    peer = make_peer(broker)
    await peer.send("Orders", body=b"later", DELAY="1")
    (waiting,) = stored(broker, SCHEDULE_TOPIC, 0)
    (message,) = await pull(peer, "Orders")
    late_ms = message.store_timestamp - (waiting.store_timestamp + 1000)
    # How late exactly depends on the machine.
    assert 0 <= late_ms < 5000


async def test_levels_do_not_wait_for_each_other(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker, 18, body=b"slow")
    append_delayed(broker, 1, body=b"quick")
    clock.advance(1000)
    for level in range(1, 19):
        broker.schedule.deliver_due(level)
    assert [message.body for message in stored(broker, "Orders")] == [b"quick"]


async def test_custom_levels(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS, delay_levels="2s 1d")
    peer = make_peer(broker)
    await peer.send("Orders", body=b"x", DELAY="7")  # above the highest: counts as the highest
    clock.advance(86_400_000 - 1)
    broker.schedule.deliver_due(2)
    assert stored(broker, "Orders") == []
    clock.advance(1)
    broker.schedule.deliver_due(2)
    assert len(stored(broker, "Orders")) == 1


async def test_progress_survives_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker, body=b"one")
    clock.advance(1000)
    append_delayed(broker, body=b"two")
    broker.schedule.deliver_due(1)
    await broker.stop()
    saved = await asyncio.to_thread((tmp_path / "store" / "config" / "delayOffset.json").read_bytes)
    assert json.loads(saved) == {"offsetTable": {"1": 1}}
    again = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    again.schedule.deliver_due(1)
    assert [message.body for message in stored(again, "Orders")] == [b"one"]
    # It became due while the broker was down.
    clock.advance(50_000)
    again.schedule.deliver_due(1)
    assert [message.body for message in stored(again, "Orders")] == [b"one", b"two"]


@pytest.fixture
def java_offsets(tmp_path: Path) -> None:
    """A table as a Java broker writes it."""
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "delayOffset.json").write_text('{\n\t"offsetTable":{1:25,2:0\n\t}\n}')


@pytest.mark.usefixtures("java_offsets")
async def test_java_s_offsets_are_read_and_brought_into_the_queue(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    # The queue of level 1 is gone; new messages start at 0 and must not be skipped.
    assert broker.schedule.snapshot().offset_table == {1: 0, 2: 0}
    append_delayed(broker)
    clock.advance(1000)
    broker.schedule.deliver_due(1)
    assert len(stored(broker, "Orders")) == 1


async def test_offsets_are_saved_when_they_changed(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=1, delay_offsets_interval_ms=1)
    append_delayed(broker)
    clock.advance(1000)
    saved = asyncio.Event()
    mark = broker.saver.mark

    def note(name: str) -> None:
        mark(name)
        if name == "delays":
            saved.set()

    monkeypatch.setattr(broker.saver, "mark", note)
    async with asyncio.timeout(PATIENCE_S):
        await saved.wait()
    assert broker.schedule.snapshot().offset_table == {1: 1}


async def test_what_has_no_destination_is_left_out(make_broker: MakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker, topic=HALF_TOPIC)
    append_delayed(broker, queue="no number")
    append_delayed(broker, topic="bad/name")
    append_delayed(broker, body=b"good")
    clock.advance(1000)
    broker.schedule.deliver_due(1)
    assert stored(broker, HALF_TOPIC) == []
    assert [message.body for message in stored(broker, "Orders")] == [b"good"]
    assert broker.schedule.snapshot().offset_table == {1: 4}
    assert caplog.text.count("is skipped") == 3


async def test_a_damaged_message_is_left_out(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    bad = append_delayed(broker, body=b"bad")
    append_delayed(broker, body=b"good")
    segment = broker.store.log.chain.find(bad.position)
    assert segment is not None
    segment.buffer[bad.position - segment.start + 88] ^= 1
    clock.advance(1000)
    broker.schedule.deliver_due(1)
    assert [message.body for message in stored(broker, "Orders")] == [b"good"]


async def test_a_full_disk_delays_and_loses_nothing(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker)
    clock.advance(1000)
    broker.store.refuse("the disk is full")
    broker.schedule.deliver_due(1)
    broker.store.refuse("")
    broker.schedule.deliver_due(1)
    assert stored(broker, "Orders") == []
    clock.advance(RETRY_MS)
    broker.schedule.deliver_due(1)
    assert len(stored(broker, "Orders")) == 1


async def test_one_turn_is_bounded(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    for number in range(150):
        append_delayed(broker, body=b"%d" % number)
    append_delayed(broker, 2, body=b"x" * 700_000)
    append_delayed(broker, 2, body=b"y" * 700_000)
    append_delayed(broker, 2, body=b"z")
    clock.advance(5000)
    counts = []
    while broker.schedule.deliver_due(1) == 0:
        counts.append(len(stored(broker, "Orders")))
    # Queue segments have 100 entries here, and one look does not go beyond one.
    assert counts == [64, 100]
    assert [message.body for message in stored(broker, "Orders")] == [b"%d" % number for number in range(150)]
    assert broker.schedule.deliver_due(2) == 0
    assert len(stored(broker, "Orders")) == 152


async def test_a_slave_delivers_nothing(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker)
    await broker.stop()
    broker = await make_broker(clock=clock, schedule_interval_ms=1, role=BrokerRole.SLAVE, broker_id=1)
    clock.advance(1000)
    # Two round trips: the timer would have had its turn.
    peer = make_peer(broker)
    for _ in range(2):
        await peer.ask(RequestCode.HEART_BEAT)
    assert stored(broker, "Orders") == []


async def test_operators_see_the_progress(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker)
    clock.advance(1000)
    broker.schedule.deliver_due(1)
    answer = await make_peer(broker).expect(RequestCode.GET_ALL_DELAY_OFFSET)
    assert answer.body.offset_table == {1: 1}


@pytest.mark.parametrize("is_synced", [False, True])
async def test_a_power_loss_takes_no_message_that_was_delivered_and_not_synced(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, is_synced: bool
) -> None:
    """The table tells what is delivered; it must not be ahead of the log on disk."""
    clock = VirtualClock()
    disk = SimulatedDisk(seed=1)
    options: dict[str, Any] = {"schedule_interval_ms": NEVER_MS, "flush_interval_ms": NEVER_MS}
    broker = await make_broker(disk=disk, clock=clock, **options)
    append_delayed(broker, body=b"promised")
    store, saver = broker.store, broker.saver
    await asyncio.to_thread(store.flusher.sync_log)
    clock.advance(1000)
    broker.schedule.deliver_due(1)
    assert [message.body for message in stored(broker, "Orders")] == [b"promised"]
    if not is_synced:
        monkeypatch.setattr(broker.background.group_commit, "_start", lambda: None)
    flushed = broker.schedule.save_if_changed()
    assert flushed is not None
    if is_synced:
        async with asyncio.timeout(SECONDS_MAX):
            assert await flushed
    await asyncio.sleep(0)
    await saver.wait_until_saved("delays")
    monkeypatch.undo()
    assert (store.flusher.flushed == store.log.tail) is is_synced
    left = await asyncio.to_thread(disk.crash, "drop")
    again = await make_broker(disk=left, clock=clock, name="store", **options)
    again.schedule.deliver_due(1)
    assert [message.body for message in stored(again, "Orders")] == [b"promised"]
