"""Transactions with a real broker: deciding, checking, giving up, resuming, and what is on disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._broker.transactions.decisions import Decisions
from eruca._broker.transactions.handlers import TransactionHandlers
from eruca._ground.config import FlushMode
from eruca._net.caller import Caller
from eruca._net.handlers import Request
from eruca._net.link import Link
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import CheckTransactionHeader, EndTransactionHeader, MessageIdHeader
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import HALF_TOPIC, OP_HALF_TOPIC
from eruca._wire.record import Record, decode_record
from eruca.errors import StoreFull
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import Inbox, pull, send_half, stored
from tests.integration.broker.peer import Peer
from tests.integration.broker.replication.members import wait_until

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
END = RequestCode.END_TRANSACTION
MAX_CHECKS = "TRANS_CHECK_MAX_TIME_TOPIC"
PROGRESS = "CID_RMQ_SYS_TRANS"
NEVER_MS = 3_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(make_broker: MakeBroker, clock: VirtualClock) -> Broker:
    """A broker that checks only when a test calls it."""
    return await make_broker(clock=clock, transaction_check_interval_ms=NEVER_MS, transaction_check_max=2)


def decide(half: Record, decision: int, group: str = "payers") -> EndTransactionHeader:
    return EndTransactionHeader(
        producer_group=group,
        half_offset=half.queue_offset,
        position=half.position,
        decision=decision,
        message_id="0" * 32,
        from_check=False,
    )


def progress(broker: Broker) -> tuple[int, int]:
    offsets = broker.offsets
    return offsets.get(PROGRESS, HALF_TOPIC, 0), offsets.get(PROGRESS, OP_HALF_TOPIC, 0)


async def check(broker: Broker, clock: VirtualClock, after_ms: int = 6001) -> None:
    clock.advance(after_ms)
    await broker.checks.run_pass()


async def test_a_half_is_not_seen_until_it_is_committed(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    half = await send_half(peer, born_ms=clock.now_ms(), USER="me")
    assert (half.topic, half.queue_id, half.queue_offset, half.sys_flag) == (HALF_TOPIC, 0, 0, 0)
    assert stored(broker, "Orders", 1) == []
    clock.advance(50)
    answer = await peer.expect(END, decide(half, COMMIT))
    assert answer.ext is None
    (message,) = await pull(peer, "Orders", 1, expression="TagA")
    assert message.sys_flag == COMMIT
    assert message.prepared_position == half.position
    assert message.properties == half.properties
    assert message.store_timestamp == half.store_timestamp + 50
    for name in ("body", "flag", "born_timestamp", "born_host", "store_host", "reconsume_times"):
        assert getattr(message, name) == getattr(half, name), name


async def test_the_op_record_is_java_s(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    await send_half(peer, born_ms=clock.now_ms())
    half = await send_half(peer, born_ms=clock.now_ms())
    await peer.expect(END, decide(half, ROLLBACK))
    (op,) = stored(broker, OP_HALF_TOPIC)
    assert op.body == b"1"
    assert op.properties == b"WAIT\x01true\x02TAGS\x01d"
    assert op.born_timestamp == clock.now_ms()
    assert op.born_host == op.store_host == half.store_host
    assert (op.sys_flag, op.flag, op.prepared_position) == (0, 0, 0)
    assert stored(broker, "Orders", 1) == []
    # The topic of the ops is internal: it has a queue but no settings.
    assert broker.topics.get(OP_HALF_TOPIC) is None


@pytest.mark.parametrize("decision", [UNKNOWN, 4, 99])
async def test_who_does_not_know_gets_no_answer(broker: Broker, peer: Peer, clock: VirtualClock, decision: int) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    request = Request(Link(Caller()), make_request(END), decide(half, decision), None)
    decisions = Decisions(broker.standing, clock, broker.store, broker.stats)
    handlers = TransactionHandlers(
        broker.live, broker.standing, broker.store, broker.stats, broker.acknowledgement, decisions
    )
    assert handlers.end(request) is None
    assert stored(broker, OP_HALF_TOPIC) == []


async def test_every_field_must_name_the_same_half(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    plain = await peer.send("Orders", 1)
    missing = (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    for position in (half.position + 1, -1, 2**60, int(plain["msgId"][-16:], 16)):
        header = decide(half, COMMIT)
        header.position = position
        assert await peer.refused(END, header) == missing
    assert await peer.refused(END, decide(half, COMMIT, "others")) == (
        ResponseCode.SYSTEM_ERROR,
        "The producer group wrong",
    )
    header = decide(half, ROLLBACK)
    header.half_offset = 1
    assert await peer.refused(END, header) == (ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    assert stored(broker, OP_HALF_TOPIC) == []
    assert len(stored(broker, "Orders", 1)) == 1


async def test_the_first_decision_counts(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    await peer.expect(END, decide(half, ROLLBACK))
    await peer.expect(END, decide(half, COMMIT))
    assert stored(broker, "Orders", 1) == []
    assert len(stored(broker, OP_HALF_TOPIC)) == 1


async def test_a_slave_decides_nothing(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(role=BrokerRole.SLAVE, broker_id=1)
    half = Record(topic=HALF_TOPIC)
    code, _ = await make_peer(broker).refused(END, decide(half, COMMIT))
    assert code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_full_store_refuses_to_commit_and_a_later_try_succeeds(
    broker: Broker, peer: Peer, clock: VirtualClock
) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    broker.store.refuse("the disk is full")
    code, _ = await peer.refused(END, decide(half, COMMIT))
    assert code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.store.refuse("")
    await peer.expect(END, decide(half, COMMIT))
    assert len(stored(broker, "Orders", 1)) == 1


async def test_a_full_store_refuses_to_roll_back_and_a_later_try_succeeds(
    broker: Broker, peer: Peer, clock: VirtualClock
) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    broker.store.refuse("the disk is full")
    code, _ = await peer.refused(END, decide(half, ROLLBACK))
    assert code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.store.refuse("")
    await peer.expect(END, decide(half, ROLLBACK))
    assert [op.body for op in stored(broker, OP_HALF_TOPIC)] == [b"0"]
    await check(broker, clock)
    assert len(stored(broker, HALF_TOPIC)) == 1


@pytest.fixture
def fail_ops(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Controls whether the store rejects op records."""
    append, failing = broker.store.append, [False]

    def refuse_ops(message: Record) -> Record:
        if failing[0] and message.topic == OP_HALF_TOPIC:
            raise StoreFull("the disk is full")
        return append(message)

    monkeypatch.setattr(broker.store, "append", refuse_ops)
    return lambda fails: failing.__setitem__(0, fails)


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
async def test_a_commit_whose_op_record_failed_is_not_made_twice_and_gets_its_op_record(
    broker: Broker, peer: Peer, clock: VirtualClock, fail_ops: Callable[[bool], None], decision: int
) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    fail_ops(True)
    await peer.expect(END, decide(half, COMMIT))
    assert stored(broker, OP_HALF_TOPIC) == []
    fail_ops(False)
    await peer.expect(END, decide(half, decision))
    assert len(stored(broker, "Orders", 1)) == 1
    assert [op.body for op in stored(broker, OP_HALF_TOPIC)] == [b"0"]


async def test_nobody_is_asked_about_a_half_whose_op_record_failed(
    broker: Broker, peer: Peer, clock: VirtualClock, fail_ops: Callable[[bool], None]
) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    fail_ops(True)
    await peer.expect(END, decide(half, COMMIT))
    fail_ops(False)
    await check(broker, clock)
    assert [op.body for op in stored(broker, OP_HALF_TOPIC)] == [b"0"]
    assert len(stored(broker, HALF_TOPIC)) == 1
    assert progress(broker) == (1, 1)


async def test_a_rollback_that_was_not_kept_decides_nothing(
    broker: Broker, peer: Peer, clock: VirtualClock, fail_ops: Callable[[bool], None]
) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    fail_ops(True)
    await peer.refused(END, decide(half, ROLLBACK))
    fail_ops(False)
    await peer.expect(END, decide(half, COMMIT))
    assert len(stored(broker, "Orders", 1)) == 1


async def test_a_decision_finds_its_half_in_the_transient_buffer(
    make_broker: MakeBroker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    broker = await make_broker(clock=clock, transient_enabled=True, commit_interval_ms=NEVER_MS)
    peer = make_peer(broker)
    await peer.send("Orders", 1, b"first")
    broker.store.commit()
    ext = await peer.send("Orders", 1, b"pay", TRAN_MSG="true", PGROUP="payers")
    header = EndTransactionHeader(
        producer_group="payers",
        half_offset=int(ext["queueOffset"]),
        position=int(ext["msgId"][-16:], 16),
        decision=COMMIT,
        message_id="",
    )
    await peer.expect(END, header)
    broker.store.commit()
    assert [message.body for message in stored(broker, "Orders", 1)] == [b"first", b"pay"]


# --- asking back ----------------------------------------------------------------------------------------------------


async def test_a_producer_is_asked_about_the_new_copy_and_its_answer_decides(
    broker: Broker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    inbox = Inbox()
    peer = make_peer(broker, handlers={RequestCode.CHECK_TRANSACTION_STATE: inbox.handle})
    await peer.produce("payers", "client-1")
    half = await send_half(peer, born_ms=clock.now_ms())
    await check(broker, clock)
    (_, copy) = stored(broker, HALF_TOPIC)
    assert copy.get_property("TRANSACTION_CHECK_TIMES") == "1"
    assert (copy.body, copy.flag, copy.born_timestamp) == (half.body, half.flag, half.born_timestamp)
    question = await inbox.get()
    assert question.flag & FLAG_ONEWAY
    header = question.decode_header(CheckTransactionHeader)
    assert header == CheckTransactionHeader(
        half_offset=1,
        position=copy.position,
        message_id="0" * 32,
        transaction_id="0" * 32,
        offset_message_id=encode_offset_id(copy.store_host, copy.position),
    )
    asked = decode_record(question.body)
    assert (asked.topic, asked.queue_id, asked.queue_offset, asked.position) == ("Orders", 1, 1, copy.position)
    assert (asked.body, asked.flag, asked.store_timestamp) == (half.body, half.flag, half.store_timestamp)
    assert asked.get_property("WAIT") == "false"
    assert asked.get_property("TRANSACTION_CHECK_TIMES") == "1"
    answer = decide(copy, COMMIT)
    answer.from_check = True
    await peer.expect(END, answer)
    assert [message.body for message in await pull(peer, "Orders", 1)] == [b"pay"]
    await check(broker, clock)
    assert len(stored(broker, HALF_TOPIC)) == 2
    assert progress(broker) == (2, 2)


async def test_the_timer_asks_by_itself(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    inbox = Inbox()
    broker = await make_broker(transaction_check_interval_ms=5, transaction_timeout_ms=0, transaction_check_max=10_000)
    peer = make_peer(broker, handlers={RequestCode.CHECK_TRANSACTION_STATE: inbox.handle})
    await peer.produce("payers", "client-1")
    await send_half(peer, born_ms=1_000_000_000_000 * 10)
    question = await inbox.get()
    assert decode_record(question.body).body == b"pay"


class HastyClock:
    """Each reading takes a part of a millisecond, so the wall clock advances in the middle of a pass."""

    def __init__(self, phase: float) -> None:
        self._seconds = 1_700_000_000.0 + phase / 1000

    def now_ms(self) -> int:
        self._seconds += 0.0001
        return int(self._seconds * 1000)

    def monotonic(self) -> float:
        self._seconds += 0.0001
        return self._seconds


@pytest.mark.parametrize("phase", [number / 10 for number in range(10)])
async def test_a_pass_asks_once_whatever_the_clocks_round_to(
    make_broker: MakeBroker, make_peer: MakePeer, phase: float
) -> None:
    clock = HastyClock(phase)
    broker = await make_broker(clock=clock, transaction_check_interval_ms=NEVER_MS, transaction_timeout_ms=0)
    await send_half(make_peer(broker), born_ms=clock.now_ms() - 10)
    await broker.checks.run_pass()
    assert len(stored(broker, HALF_TOPIC)) == 2


async def test_producers_of_the_group_are_asked_in_turn(
    broker: Broker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    inboxes = [Inbox() for _ in range(3)]
    for number, inbox in enumerate(inboxes):
        peer = make_peer(broker, handlers={RequestCode.CHECK_TRANSACTION_STATE: inbox.handle})
        await peer.produce("payers" if number else "others", f"client-{number}")
    for _ in range(6):
        await send_half(make_peer(broker), born_ms=clock.now_ms())
    await check(broker, clock)
    for inbox in inboxes[1:]:
        for _ in range(3):
            await inbox.get()
    assert inboxes[0].commands.empty()


async def test_a_group_that_moved_to_another_machine_is_asked_there(
    broker: Broker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    sender = make_peer(broker)
    await sender.produce("payers", "old machine")
    await send_half(sender, born_ms=clock.now_ms())
    await sender.close()
    inbox = Inbox()
    peer = make_peer(broker, handlers={RequestCode.CHECK_TRANSACTION_STATE: inbox.handle})
    await peer.produce("payers", "new machine")
    await check(broker, clock)
    assert (await inbox.get()).code == RequestCode.CHECK_TRANSACTION_STATE


async def test_after_a_restart_the_undecided_are_asked_about_and_the_decided_are_not(
    make_broker: MakeBroker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    first = await make_broker(clock=clock, transaction_check_interval_ms=NEVER_MS)
    peer = make_peer(first)
    undecided = await send_half(peer, born_ms=clock.now_ms())
    decided = await send_half(peer, born_ms=clock.now_ms())
    await peer.expect(END, decide(decided, ROLLBACK))
    await first.stop()
    second = await make_broker(clock=clock, transaction_check_interval_ms=NEVER_MS)
    await check(second, clock)
    copies = stored(second, HALF_TOPIC)[2:]
    assert [copy.get_property("TRAN_PREPARED_QUEUE_OFFSET") for copy in copies] == [str(undecided.queue_offset)]
    assert progress(second) == (2, 1)
    await second.stop()
    third = await make_broker(clock=clock, transaction_check_interval_ms=NEVER_MS)
    # The progress was saved: the first half is not checked again.
    await check(third, clock)
    assert [copy.get_property("TRANSACTION_CHECK_TIMES") for copy in stored(third, HALF_TOPIC)] == [
        None,
        None,
        "1",
        "2",
    ]


async def test_a_slow_decision_about_the_original_ends_the_questions(
    broker: Broker, peer: Peer, clock: VirtualClock
) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    await check(broker, clock)
    await peer.expect(END, decide(half, COMMIT))
    (_, copy) = stored(broker, HALF_TOPIC)
    # The answer to the check arrives as well, but it is the same transaction.
    await peer.expect(END, decide(copy, COMMIT))
    await check(broker, clock)
    assert len(stored(broker, HALF_TOPIC)) == 2
    assert len(stored(broker, "Orders", 1)) == 1


async def test_immunity(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    half = await send_half(peer, born_ms=clock.now_ms(), CHECK_IMMUNITY_TIME_IN_SECONDS="30")
    await check(broker, clock)
    (_, copy) = stored(broker, HALF_TOPIC)
    assert copy.get_property("TRAN_PREPARED_QUEUE_OFFSET") == "0"
    assert copy.get_property("TRANSACTION_CHECK_TIMES") is None
    assert copy.get_property("WAIT") == "false"
    assert copy.flag == half.flag
    await check(broker, clock, 24_000)
    assert stored(broker, HALF_TOPIC)[-1].get_property("TRANSACTION_CHECK_TIMES") == "1"


async def test_immunity_that_is_no_number_is_the_usual_time(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    await send_half(peer, born_ms=clock.now_ms(), CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
    await check(broker, clock, 5999)
    await check(broker, clock, 1)
    assert [copy.get_property("TRANSACTION_CHECK_TIMES") for copy in stored(broker, HALF_TOPIC)] == [None, None, "1"]


async def test_too_many_questions_put_it_aside_and_an_operator_resumes_it(
    broker: Broker, peer: Peer, clock: VirtualClock
) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    for _ in range(3):
        await check(broker, clock)
    (aside,) = stored(broker, MAX_CHECKS)
    assert aside.get_property("TRANSACTION_CHECK_TIMES") == "2"
    assert (aside.body, aside.flag) == (half.body, half.flag)
    assert len(await pull(peer, MAX_CHECKS)) == 1
    await check(broker, clock)
    assert len(stored(broker, HALF_TOPIC)) == 3
    header = MessageIdHeader(message_id=encode_offset_id(aside.store_host, aside.position))
    await peer.expect(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    resumed = stored(broker, HALF_TOPIC)[-1]
    assert resumed.get_property("TRANSACTION_CHECK_TIMES") == "0"
    await check(broker, clock)
    assert stored(broker, HALF_TOPIC)[-1].get_property("TRANSACTION_CHECK_TIMES") == "1"
    await peer.expect(END, decide(stored(broker, HALF_TOPIC)[-1], COMMIT))
    assert len(stored(broker, "Orders", 1)) == 1


async def test_who_resumes_a_half_is_answered_when_the_disk_has_it(
    make_broker: MakeBroker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    broker = await make_broker(
        clock=clock, flush_mode=FlushMode.SYNC, sync_flush_timeout_ms=60_000, transaction_check_interval_ms=NEVER_MS
    )
    peer = make_peer(broker)
    half = await send_half(peer, born_ms=clock.now_ms())
    header = MessageIdHeader(message_id=encode_offset_id(half.store_host, half.position))
    await peer.expect(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    assert len(stored(broker, HALF_TOPIC)) == 2
    assert broker.store.flusher.flushed == broker.store.log.tail


async def test_only_half_messages_are_resumed(broker: Broker, peer: Peer) -> None:
    ext = await peer.send("Orders", 1)
    for wrong in (ext["msgId"], "no id", "", ext["msgId"][:-16] + f"{2**40:016X}"):
        code, _ = await peer.refused(RequestCode.RESUME_CHECK_HALF_MESSAGE, MessageIdHeader(message_id=wrong))
        assert code == ResponseCode.SYSTEM_ERROR
    assert stored(broker, HALF_TOPIC) == []


async def test_a_full_disk_stops_the_pass_and_loses_nothing(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    await send_half(peer, born_ms=clock.now_ms())
    broker.store.refuse("the disk is full")
    await check(broker, clock)
    broker.store.refuse("")
    await check(broker, clock)
    assert len(stored(broker, HALF_TOPIC)) == 2


async def test_a_half_without_room_for_another_property_is_asked_about_as_it_is(
    broker: Broker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    inbox = Inbox()
    peer = make_peer(broker, handlers={RequestCode.CHECK_TRANSACTION_STATE: inbox.handle})
    await peer.produce("payers", "client-1")
    half = await send_half(peer, born_ms=clock.now_ms(), USER="x" * 32_600)
    await check(broker, clock)
    header = (await inbox.get()).decode_header(CheckTransactionHeader)
    assert (header.half_offset, header.position) == (half.queue_offset, half.position)
    assert progress(broker)[0] == 1


async def test_a_damaged_half_is_passed_over(broker: Broker, peer: Peer, clock: VirtualClock) -> None:
    half = await send_half(peer, born_ms=clock.now_ms())
    await send_half(peer, born_ms=clock.now_ms())
    segment = broker.store.log.chain.find(half.position)
    assert segment is not None
    segment.buffer[half.position - segment.start + 88] ^= 1
    await check(broker, clock)
    assert progress(broker)[0] == 2


@pytest.fixture
def progress_ahead(tmp_path: Path) -> None:
    """Offsets as they may be after a crash that cost the queues their last entries."""
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    topics = {f"{topic}@{PROGRESS}": {"0": 99} for topic in (HALF_TOPIC, OP_HALF_TOPIC)}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": topics}))


@pytest.mark.usefixtures("progress_ahead")
async def test_halves_behind_a_crash_are_not_passed_over(
    make_broker: MakeBroker, make_peer: MakePeer, clock: VirtualClock
) -> None:
    broker = await make_broker(clock=clock, transaction_check_interval_ms=NEVER_MS)
    assert progress(broker) == (0, 0)
    peer = make_peer(broker)
    decided = await send_half(peer, born_ms=clock.now_ms())
    await send_half(peer, born_ms=clock.now_ms())
    await peer.expect(END, decide(decided, ROLLBACK))
    await check(broker, clock)
    checks = [half.get_property("TRAN_PREPARED_QUEUE_OFFSET") for half in stored(broker, HALF_TOPIC)]
    assert checks == [None, None, "1"]
    assert progress(broker) == (2, 1)


@pytest.mark.parametrize("is_synced", [False, True])
async def test_a_power_loss_takes_no_half_that_was_written_again_and_not_synced(
    make_broker: MakeBroker, make_peer: MakePeer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, is_synced: bool
) -> None:
    disk = SimulatedDisk(seed=1)
    options: dict[str, Any] = {"transaction_check_interval_ms": NEVER_MS, "flush_interval_ms": NEVER_MS}
    broker = await make_broker(disk=disk, clock=clock, **options)
    await send_half(make_peer(broker), born_ms=clock.now_ms())
    await asyncio.to_thread(broker.store.flusher.sync_log)
    if not is_synced:
        monkeypatch.setattr(broker.background.group_commit, "_start", lambda: None)
    checking = asyncio.get_running_loop().create_task(check(broker, clock))
    await wait_until(lambda: len(stored(broker, HALF_TOPIC)) == 2)
    if is_synced:
        await checking
    broker.saver.mark("offsets")
    await broker.saver.wait_until_saved("offsets")
    left = await asyncio.to_thread(disk.crash, "drop")
    checking.cancel()
    await asyncio.gather(checking, return_exceptions=True)
    monkeypatch.undo()
    again = await make_broker(disk=left, clock=clock, **options)
    inbox = Inbox()
    peer = make_peer(again, handlers={RequestCode.CHECK_TRANSACTION_STATE: inbox.handle})
    await peer.produce("payers", "client-1")
    await check(again, clock)
    assert (await inbox.get()).body
    assert progress(again)[0] == (2 if is_synced else 1)
