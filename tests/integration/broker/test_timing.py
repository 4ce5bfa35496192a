"""Messages with any delay with a real broker: never early, never lost, cancelled, rolled, across restarts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca._broker.app import Broker
from eruca._broker.delaying import timing as module
from eruca._broker.options import BrokerRole
from eruca._broker.sending.mapping import map_timer
from eruca._observe.metrics import SERVER
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import SendMessageV2Header
from eruca._wire.names import TIMER_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record, decode_record
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import cut_unheard, pull, stored

# So long that the broker's own timer does not interfere with a test that delivers by hand.
NEVER_MS = 3_600_000
DAY_MS = 24 * 3_600_000


@pytest.fixture(autouse=True)
def save_by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "SAVE_INTERVAL_MS", NEVER_MS)
    yield


async def make_quiet(make_broker: MakeBroker, clock: VirtualClock, **options: object) -> Broker:
    """A broker whose timer runs only when a test calls it; its first turn is over."""
    broker = await make_broker(clock=clock, schedule_interval_ms=NEVER_MS, **options)
    await asyncio.sleep(0)
    return broker


def run(broker: Broker) -> None:
    """Let the timer do all it has to do now."""
    while broker.timing.run_turn() == 0:
        pass


def run_until(broker: Broker, clock: VirtualClock, end_ms: int, step_ms: int) -> None:
    """Let time pass in steps, with a turn of the timer in each."""
    while clock.now_ms() < end_ms:
        clock.advance(min(step_ms, end_ms - clock.now_ms()))
        run(broker)


def append(broker: Broker, due_ms: int, body: bytes = b"x", unique_id: str = "id") -> Record:
    """Put a message straight into the timer topic."""
    message = Record(topic="Orders", queue_id=0, body=body, properties=encode_properties({"UNIQ_KEY": unique_id}))
    map_timer(message, due_ms)
    return broker.store.append(message)


def keep_files(store: Path) -> dict[Path, bytes]:
    """The timer's files as a kill would leave them now."""
    return {path: path.read_bytes() for path in (store / "eruca-timer").rglob("*") if path.is_file()}


def list_sizes(directory: Path) -> list[int]:
    """The sizes of its files, by name."""
    return [path.stat().st_size for path in sorted(directory.iterdir())]


def put_files(files: dict[Path, bytes], lost: str = "nothing") -> None:
    """Restore the timer's files, except for one that is lost."""
    for path, data in files.items():
        path.write_bytes(data)
        if lost in (path.name, path.parent.name):
            path.unlink()


def read_survivors(broker: Broker) -> list[Record]:
    """Return the messages of the queue; a power loss may have removed some that were not acknowledged."""
    queue = broker.store.queues.get("Orders", 0)
    entries = [] if queue is None else [queue.entry(offset) for offset in range(queue.min_offset, queue.max_offset)]
    views = [None if entry is None else broker.store.reader.view_record(entry.position) for entry in entries]
    return [decode_record(view) for view in views if view is not None]


def bodies(broker: Broker, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in stored(broker, "Orders", queue_id)]


def header(properties: dict[str, str], topic: str = "Orders", *, batch: bool = False) -> SendMessageV2Header:
    return SendMessageV2Header(
        producer_group="producers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        batch=batch,
        properties=encode_properties(properties).decode(),
    )


@pytest.mark.parametrize(
    ("name", "text"), [("TIMER_DELAY_MS", "61234"), ("TIMER_DELAY_SEC", "61"), ("TIMER_DELIVER_MS", "1700000061234")]
)
async def test_a_message_comes_when_it_is_due_and_not_a_moment_before(
    make_broker: MakeBroker, make_peer: MakePeer, name: str, text: str
) -> None:
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    peer = make_peer(broker)
    await peer.send("Orders", 2, b"later", TAGS="TagA", UNIQ_KEY="one", **{name: text})
    (waiting,) = stored(broker, TIMER_TOPIC)
    due_ms = int(waiting.read_properties()["TIMER_OUT_MS"])
    assert due_ms - 1_700_000_000_000 == (61_000 if name == "TIMER_DELAY_SEC" else 61_234)
    run(broker)
    run_until(broker, clock, due_ms - 1, 7000)
    assert stored(broker, "Orders", 2) == []
    assert broker.timing._wheel.next_due_ms == due_ms
    assert broker.timing.pending == 1
    clock.advance(1)
    run(broker)
    (message,) = stored(broker, "Orders", 2)
    assert message.properties == waiting.properties
    assert (message.body, message.store_timestamp) == (b"later", due_ms)
    assert [found.position for found in await pull(peer, "Orders", 2, expression="TagA")] == [message.position]
    run(broker)
    assert len(stored(broker, "Orders", 2)) == 1
    assert broker.timing.pending == 0


async def test_with_the_machine_s_own_clock_it_is_hardly_late(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker()
    peer = make_peer(broker)
    await peer.send("Orders", body=b"later", TIMER_DELAY_MS="350")
    (message,) = await pull(peer, "Orders")
    # How late exactly depends on the machine.
    assert 0 <= message.store_timestamp - int(message.read_properties()["TIMER_OUT_MS"]) < 5000


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_MS": "-1"},
        {"TIMER_DELAY_MS": "soon"},
        {"TIMER_DELAY_SEC": "9" * 40},
        {"TIMER_DELAY_SEC": str(40 * 24 * 3600 + 1)},
        {"TIMER_DELIVER_MS": str(1_700_000_000_001 + 40 * DAY_MS)},
        {"TIMER_DELAY_MS": "1000", "TRAN_MSG": "true", "PGROUP": "producers"},
    ],
)
async def test_what_makes_no_sense_is_refused(
    make_broker: MakeBroker, make_peer: MakePeer, properties: dict[str, str]
) -> None:
    broker = await make_quiet(make_broker, VirtualClock(1_700_000_000_000))
    code, remark = await make_peer(broker).refused(RequestCode.SEND_MESSAGE_V2, header(properties), b"x")
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert "timer message illegal" in remark
    assert stored(broker, TIMER_TOPIC) == []


async def test_forty_days_are_taken_and_batches_are_not(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_quiet(make_broker, VirtualClock(1_700_000_000_000))
    peer = make_peer(broker)
    await peer.send("Orders", TIMER_DELAY_SEC=str(40 * 24 * 3600))
    assert len(stored(broker, TIMER_TOPIC)) == 1
    body = encode_batch([BatchItem(0, b"x", encode_properties({"TIMER_DELAY_MS": "1000"}))])
    code, _ = await peer.refused(RequestCode.SEND_BATCH_MESSAGE, header({}, batch=True), body)
    assert code == ResponseCode.MESSAGE_ILLEGAL
    code, _ = await peer.refused(RequestCode.SEND_MESSAGE_V2, header({}, TIMER_TOPIC), b"x")
    assert code == ResponseCode.NO_PERMISSION


async def test_what_is_due_or_was_delayed_before_goes_straight(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_quiet(make_broker, VirtualClock(1_700_000_000_000))
    peer = make_peer(broker)
    await peer.send("Orders", body=b"past", TIMER_DELIVER_MS="1600000000000")
    await peer.send("Orders", body=b"again", TIMER_DELAY_MS="5000", TIMER_OUT_MS="1600000000000")
    await peer.send("Orders", body=b"level", TIMER_DELAY_MS="5000", DELAY="1")
    assert bodies(broker) == [b"past", b"again"]
    assert stored(broker, TIMER_TOPIC) == []


async def test_switched_off_the_property_means_nothing(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_quiet(make_broker, VirtualClock(), timer_enabled=False)
    await make_peer(broker).send("Orders", body=b"now", TIMER_DELAY_MS="5000")
    assert bodies(broker) == [b"now"]


async def test_cancelled_messages_do_not_come(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    peer = make_peer(broker)
    for name in ("one", "two", "three"):
        await peer.send("Orders", body=name.encode(), TIMER_DELAY_MS="60000", UNIQ_KEY=name)
    run(broker)
    await peer.send("Orders", body=b"cancel", TIMER_DEL_UNIQKEY="two", UNIQ_KEY="c1")
    # Another topic's message is not ours to cancel.
    await peer.send("Bills", body=b"cancel", TIMER_DEL_UNIQKEY="three", UNIQ_KEY="c2")
    # The last moment: acknowledged before it is due, read only then.
    clock.advance(60_000 - 1)
    await peer.send("Orders", body=b"cancel", TIMER_DEL_UNIQKEY="one", TIMER_DELIVER_MS="1700000060000", UNIQ_KEY="c3")
    clock.advance(1)
    run(broker)
    assert bodies(broker) == [b"three"]
    assert broker.timing.pending == 0


async def test_cancellations_have_a_limit_of_which_a_topic_leaves_half(
    make_broker: MakeBroker, make_peer: MakePeer, tmp_path: Path
) -> None:
    """Keys as long as a message may have them weigh no more than others, and what was accepted counts after a start."""
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock, cancellations_max=8)
    peer = make_peer(broker)
    await peer.send("Orders", body=b"later", TIMER_DELAY_MS="60000", UNIQ_KEY="3" + "k" * 30_000)

    async def cancel(topic: str, number: int) -> tuple[int, str]:
        unique_id = f"{number}" + "k" * 30_000
        answer = await peer.ask(RequestCode.SEND_MESSAGE_V2, header({"TIMER_DEL_UNIQKEY": unique_id}, topic), b"")
        run(broker)
        return answer.code, answer.remark or ""

    assert [(await cancel("Orders", number))[0] for number in range(6)] == [0, 0, 0, 0, 1, 1]
    _, remark = await cancel("Orders", 9)
    assert remark == (
        "no more messages of Orders can be cancelled: it has 4 cancellations, all topics 4 (maxTimerCancellations=8)"
    )
    # Others have room, each a half of what is left.
    assert [(await cancel("Bills", number))[0] for number in range(3)] == [0, 0, 1]
    assert [(await cancel("Parcels", number))[0] for number in range(2)] == [0, 1]
    assert SERVER.snapshot()["eruca_server_timer_cancellations"] >= 7
    await broker.stop()
    assert sum(await asyncio.to_thread(list_sizes, tmp_path / "store" / "eruca-timer" / "cancelled")) < 500
    broker = await make_quiet(make_broker, clock, cancellations_max=8)
    peer = make_peer(broker)
    assert (await cancel("Orders", 9))[0] == 1
    run_until(broker, clock, clock.now_ms() + 60_000, 1000)
    assert broker.timing.pending == 0 and bodies(broker) == []
    # They are forgotten when no message can come that they cancel.
    clock.advance(41 * DAY_MS)
    await broker.timing.save()
    assert [(await cancel("Orders", number))[0] for number in range(5)] == [0, 0, 0, 0, 1]


async def test_a_cancellation_among_many_is_not_the_price_of_all(make_broker: MakeBroker, tmp_path: Path) -> None:
    """A save writes what is new."""
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    directory = tmp_path / "store" / "eruca-timer" / "cancelled"

    def cancel(name: str) -> None:
        message = Record("Orders", body=b"c", properties=encode_properties({"TIMER_DEL_UNIQKEY": name}))
        map_timer(message, clock.now_ms() + DAY_MS)
        broker.store.append(message)

    for number in range(1000):
        cancel(f"cancelled-{number}")
    run(broker)
    await broker.timing.save()
    cancel("one more")
    run(broker)
    await broker.timing.save()
    sizes = await asyncio.to_thread(list_sizes, directory)
    assert sizes[0] > 32_000 and sizes[-1] < 100


async def test_a_clean_restart_goes_on(make_broker: MakeBroker) -> None:
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    start = clock.now_ms()
    for number in range(500):
        append(broker, start + 1000 + number * 997, b"%d" % number, f"id-{number}")
    run_until(broker, clock, start + 100_000, 1000)
    delivered = len(bodies(broker))
    assert delivered == 100
    await broker.stop()
    clock.advance(50_000)
    broker = await make_quiet(make_broker, clock)
    assert broker.timing.pending == 500 - len(bodies(broker))
    run(broker)
    assert len(bodies(broker)) == 150
    run_until(broker, clock, start + 600_000, 5000)
    assert bodies(broker) == [b"%d" % number for number in range(500)]


async def test_a_cut_that_nobody_was_told_of_is_noticed_when_the_timer_starts(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    start = clock.now_ms()
    append(broker, start + 1000, b"done", "1")
    append(broker, start + 90_000, b"waits", "2")
    run_until(broker, clock, start + 2000, 1000)
    position = append(broker, start + 60_000, b"is cut", "3").position
    run(broker)
    await broker.stop()
    await asyncio.to_thread(cut_unheard, tmp_path / "store", position)
    broker = await make_quiet(make_broker, clock)
    assert append(broker, start + 120_000, b"is new", "4").position == position
    run_until(broker, clock, start + 130_000, 1000)
    assert bodies(broker) == [b"done", b"waits", b"is new"]
    assert [message.store_timestamp - start for message in stored(broker, "Orders")] == [1000, 90_000, 120_000]


@pytest.mark.parametrize("lost", ["nothing", "checkpoint", "log"])
async def test_after_a_kill_nothing_is_lost_and_nothing_early(
    make_broker: MakeBroker, tmp_path: Path, lost: str
) -> None:
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    start = clock.now_ms()
    due = {}
    for number in range(300):
        due[b"%d" % number] = start + 1000 + number * 1999 % 300_000
        append(broker, due[b"%d" % number], b"%d" % number, f"id-{number}")
    run(broker)
    await broker.timing.save()
    run_until(broker, clock, start + 50_000, 1000)
    await broker.timing.save()
    saved = len(bodies(broker))
    append(broker, start + 55_000, b"late", "late")
    due[b"late"] = start + 55_000
    run_until(broker, clock, start + 60_000, 1000)
    delivered = len(bodies(broker))
    files = await asyncio.to_thread(keep_files, tmp_path / "store")
    await broker.stop()
    await asyncio.to_thread(put_files, files, lost)
    broker = await make_quiet(make_broker, clock)
    run_until(broker, clock, start + 400_000, 3000)
    found = stored(broker, "Orders")
    assert {message.body for message in found} == set(due)
    assert all(message.store_timestamp >= due[message.body] for message in found)
    again = len(found) - len(due)
    assert again <= (delivered - saved if lost == "nothing" else delivered)


async def test_old_records_roll_and_come_once(make_broker: MakeBroker, tmp_path: Path) -> None:
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    start = clock.now_ms()
    due_ms = start + 10 * DAY_MS + 12_345
    append(broker, due_ms, b"far", "far")
    append(broker, due_ms, b"cancelled", "cancelled")
    run_until(broker, clock, start + 3 * DAY_MS, 600_000)
    await broker.timing.save()
    files = await asyncio.to_thread(keep_files, tmp_path / "store")
    run_until(broker, clock, start + 5 * DAY_MS, 600_000)
    queue = broker.store.queues.get(TIMER_TOPIC, 0)
    assert queue is not None
    # Twice each, and what waits is never older than two days: the log keeps three.
    assert queue.max_offset == 6
    cancel = Record(topic="Orders", body=b"c", properties=encode_properties({"TIMER_DEL_UNIQKEY": "cancelled"}))
    map_timer(cancel, clock.now_ms() + 40 * DAY_MS)
    broker.store.append(cancel)
    await broker.stop()
    await asyncio.to_thread(put_files, files)
    broker = await make_quiet(make_broker, clock)
    run_until(broker, clock, due_ms - 1, 600_000)
    assert bodies(broker) == []
    clock.advance(1)
    run(broker)
    assert bodies(broker) == [b"far"]
    run_until(broker, clock, due_ms + DAY_MS, 600_000)
    assert bodies(broker) == [b"far"]


async def test_a_full_disk_delays_and_loses_nothing(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_quiet(make_broker, clock)
    append(broker, clock.now_ms() + 1000)
    clock.advance(1000)
    broker.store.refuse("the disk is full")
    run(broker)
    broker.store.refuse("")
    run(broker)
    assert bodies(broker) == []
    clock.advance(module.RETRY_MS)
    run(broker)
    assert len(bodies(broker)) == 1


async def test_a_slave_delivers_nothing(make_broker: MakeBroker) -> None:
    clock = VirtualClock()
    broker = await make_quiet(make_broker, clock)
    append(broker, clock.now_ms() + 10)
    await broker.stop()
    broker = await make_broker(clock=clock, schedule_interval_ms=1, role=BrokerRole.SLAVE, broker_id=1)
    clock.advance(1000)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert bodies(broker) == []


async def test_a_clock_that_is_set_back_makes_nothing_early(make_broker: MakeBroker) -> None:
    clock = VirtualClock(1_700_000_000_000)
    broker = await make_quiet(make_broker, clock)
    run_until(broker, clock, 1_700_000_100_000, 1000)
    clock.set_ms(1_700_000_000_000)
    append(broker, 1_700_000_005_000)
    run(broker)
    clock.advance(4999)
    run(broker)
    assert bodies(broker) == []
    clock.advance(1)
    run(broker)
    assert len(bodies(broker)) == 1


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.whole] if n >= 6 else []) for n in range(40)])
async def test_after_a_power_loss_nothing_is_lost_and_nothing_early(make_broker: MakeBroker, seed: int) -> None:
    rng = random.Random(seed)
    clock = VirtualClock(1_700_000_000_000)
    disk = SimulatedDisk(seed=seed, clock=clock)
    broker = await make_quiet(make_broker, clock, disk=disk)
    due: dict[str, int] = {}
    cancelled: dict[str, int] = {}
    # What was on disk when it was acknowledged, as with sync flush; and what was delivered before the last save.
    safe: set[str] = set()
    settled: set[str] = set()
    for number in range(rng.randrange(20, 120)):
        what = rng.random()
        if what < 0.5:
            due[str(number)] = clock.now_ms() + rng.choice([500, 5000, 60_000, 5 * DAY_MS]) + rng.randrange(1000)
            append(broker, due[str(number)], str(number).encode(), str(number))
        elif what < 0.6 and due:
            name = rng.choice(list(due))
            if due[name] > clock.now_ms() and name not in cancelled:
                cancelled[name] = number
                cancel = Record("Orders", body=b"c", properties=encode_properties({"TIMER_DEL_UNIQKEY": name}))
                map_timer(cancel, due[name])
                broker.store.append(cancel)
        elif what < 0.8:
            clock.advance(rng.choice([100, 3000, 20_000, 30 * 3_600_000]))
            run(broker)
        elif what < 0.9:
            await broker.timing.save()
            settled = {message.body.decode() for message in stored(broker, "Orders")}
        else:
            await asyncio.to_thread(broker.store.flusher.sync_log)
            safe = set(due) | {f"c{name}" for name in cancelled}
    twin = await asyncio.to_thread(disk.crash, seed=seed)
    await broker.stop()
    broker = await make_quiet(make_broker, clock, disk=twin)
    run(broker)
    run_until(broker, clock, clock.now_ms() + 7 * DAY_MS, 4 * 3_600_000)
    found = read_survivors(broker)
    counts = Counter(message.body.decode() for message in found)
    assert all(message.store_timestamp >= due[message.body.decode()] for message in found)
    assert {name for name in due if name in safe and name not in cancelled} <= counts.keys()
    assert not {name for name in cancelled if f"c{name}" in safe} & counts.keys()
    assert {name for name in settled if counts[name] > 1} == set()
    assert broker.timing.pending == 0
