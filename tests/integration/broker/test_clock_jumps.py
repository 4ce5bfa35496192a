"""The machine's clock is set while a broker runs: nothing is early, no member expires, nothing is given up."""

from __future__ import annotations

import pytest

from eruca._broker.app import Broker
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import ConsumerData, HeartbeatData, ProducerData
from eruca._wire.codes import RequestCode
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import send_half, stored
from tests.integration.broker.test_schedule import append_delayed
from tests.integration.broker.test_timing import append as append_timed
from tests.integration.broker.test_timing import run as run_timer

# So long that the broker's own timers do not interfere with a test that calls them by hand.
NEVER_MS = 3_600_000
HOUR_MS = 3_600_000
# Ten seconds.
LEVEL = 3
JUMPS = pytest.mark.parametrize("jump_ms", [-100 * 24 * HOUR_MS, -HOUR_MS, -5000, 5000, HOUR_MS, 100 * 24 * HOUR_MS])


def jump(clock: VirtualClock, ms: int) -> None:
    clock.set_ms(clock.now_ms() + ms)


def count(broker: Broker, topic: str = "Orders") -> int:
    return len(stored(broker, topic, 0))


@JUMPS
async def test_a_level_is_never_early_and_hardly_late(make_broker: MakeBroker, jump_ms: int) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker, LEVEL, body=b"before")
    broker.schedule.deliver_due(LEVEL)
    clock.advance(3300)
    jump(clock, jump_ms)
    broker.schedule.deliver_due(LEVEL)
    append_delayed(broker, LEVEL, body=b"after")
    clock.advance(6699)
    broker.schedule.deliver_due(LEVEL)
    assert count(broker) == 0
    clock.advance(1)
    broker.schedule.deliver_due(LEVEL)
    assert [message.body for message in stored(broker, "Orders", 0)] == [b"before"]
    clock.advance(3299)
    broker.schedule.deliver_due(LEVEL)
    assert count(broker) == 1
    clock.advance(1)
    broker.schedule.deliver_due(LEVEL)
    assert [message.body for message in stored(broker, "Orders", 0)] == [b"before", b"after"]


@JUMPS
async def test_a_message_stored_before_a_jump_is_noticed_is_not_early(make_broker: MakeBroker, jump_ms: int) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    broker.schedule.deliver_due(LEVEL)
    append_delayed(broker, LEVEL, body=b"old clock")
    jump(clock, jump_ms)
    append_delayed(broker, LEVEL, body=b"new clock")
    clock.advance(100)
    broker.schedule.deliver_due(LEVEL)  # notices it
    clock.advance(9899)
    broker.schedule.deliver_due(LEVEL)
    assert count(broker) == 0
    # By then at the latest: the delay, counted from when the jump was noticed.
    clock.advance(101)
    broker.schedule.deliver_due(LEVEL)
    assert count(broker) == 2


@JUMPS
async def test_the_timer_is_never_early(make_broker: MakeBroker, jump_ms: int) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    run_timer(broker)
    append_timed(broker, clock.now_ms() + 20_000, b"before")
    run_timer(broker)
    clock.advance(1000)
    jump(clock, jump_ms)
    run_timer(broker)
    append_timed(broker, clock.now_ms() + 20_000, b"after")
    clock.advance(18_999)
    run_timer(broker)
    assert count(broker) == 0
    clock.advance(1001)
    run_timer(broker)
    found = [message.body for message in stored(broker, "Orders", 0)]
    assert b"after" in found
    # Set back, the clock has to reach the due time of the message.
    assert (b"before" in found) == (jump_ms > 0)
    if jump_ms < 0:
        clock.advance(-jump_ms)
        run_timer(broker)
        assert count(broker) == 2


async def test_what_the_timer_holds_back_survives_a_restart(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    run_timer(broker)
    append_timed(broker, clock.now_ms() + 20_000)
    jump(clock, HOUR_MS)
    run_timer(broker)
    assert (count(broker), broker.timing.pending) == (0, 1)
    await broker.stop()
    again = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    # How long it has waited is not known anymore: the clock as it is set now counts.
    clock.advance(1)
    run_timer(again)
    assert (count(again), again.timing.pending) == (1, 0)


async def test_after_a_restart_with_the_clock_set_back_a_level_waits_once_more(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    append_delayed(broker, LEVEL)
    await broker.stop()
    jump(clock, -24 * HOUR_MS)
    again = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    clock.advance(9999)
    again.schedule.deliver_due(LEVEL)
    assert count(again) == 0
    clock.advance(1)
    again.schedule.deliver_due(LEVEL)
    assert count(again) == 1


@JUMPS
async def test_clients_that_are_alive_are_not_forgotten(
    make_broker: MakeBroker, make_peer: MakePeer, jump_ms: int
) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    body = HeartbeatData(
        client_id="c1",
        consumer_data_set=[ConsumerData(group_name="G", subscription_data_set=[])],
        producer_data_set=[ProducerData(group_name="P")],
    )
    await peer.expect(RequestCode.HEART_BEAT, None, body)
    clients, timeout_ms = broker.clients, broker.options.client_timeout_ms
    jump(clock, jump_ms)
    clients.expire(timeout_ms)
    assert (list(clients.producers), list(clients.consumers)) == (["P"], ["G"])
    clock.advance(timeout_ms + 1)
    clients.expire(timeout_ms)
    assert (list(clients.producers), list(clients.consumers)) == ([], [])


@JUMPS
async def test_halves_are_asked_about_as_if_the_clock_had_not_been_set(
    make_broker: MakeBroker, make_peer: MakePeer, jump_ms: int
) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await send_half(peer, born_ms=clock.now_ms())
    checks = broker.checks
    clock.advance(1)
    jump(clock, jump_ms)
    await checks.run_pass()
    assert (count(broker, HALF_TOPIC), count(broker, MAX_CHECK_TOPIC)) == (1, 0)
    clock.advance(6000)
    await checks.run_pass()
    # The producer is asked about a copy of the half.
    assert (count(broker, HALF_TOPIC), count(broker, MAX_CHECK_TOPIC)) == (2, 0)


async def test_what_is_not_a_number_of_a_queue_is_left_out(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS)
    for queue in ("9" * 5000, "²", "\u0663"):
        append_delayed(broker, LEVEL, queue=queue)
    append_delayed(broker, LEVEL, body=b"good")
    clock.advance(10_000)
    while broker.schedule.deliver_due(LEVEL) == 0:
        pass
    assert [message.body for message in stored(broker, "Orders", 0)] == [b"good"]


async def test_a_level_of_thousands_of_digits_is_stored_and_breaks_nothing(make_broker: MakeBroker) -> None:
    broker = await make_broker()
    store = broker.store
    properties = encode_properties({"DELAY": "9" * 5000, "REAL_TOPIC": "Orders", "REAL_QID": "0"})
    message = store.append(Record(topic="SCHEDULE_TOPIC_XXXX", queue_id=0, body=b"x", properties=properties))
    assert message.position >= 0
