"""What became of transactions: told by brokers, by a commit log alone, and by records one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from eruca._admin.transactionstore import count_log_bytes, read_store
from eruca._admin.transactiontable import State, Transaction, TransactionTable
from eruca._broker.transactions.halves import make_op
from eruca._client.message import Message
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca._testing.embedded import EmbeddedBroker
from eruca._wire.host import NO_HOST
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC
from eruca._wire.properties import PGROUP, REAL_QID, REAL_TOPIC, TRANSACTION_CHECK_TIMES, UNIQ_KEY, encode_properties
from eruca._wire.record import Record
from eruca.admin import Admin
from eruca.errors import ConfigError
from tests.integration.admin.staging import (
    TRANSACTION_GROUP,
    decide,
    find_state,
    prepare,
    read_bodies,
    wait_for_state,
)


class Log:
    """Records as a broker writes them, told to a table."""

    def __init__(self) -> None:
        self.table = TransactionTable()
        self._position = 0
        self._offsets: dict[str, int] = {}

    def put(self, topic: str, name: str, checks: int = 0) -> Record:
        properties = {UNIQ_KEY: name, PGROUP: "g", REAL_TOPIC: "orders", REAL_QID: "3"}
        if checks:
            properties[TRANSACTION_CHECK_TIMES] = str(checks)
        return self._add(Record(topic, body=b"b", properties=encode_properties(properties)))

    def op(self, half: Record) -> None:
        self._add(make_op(half.queue_offset, NO_HOST, 1))

    def commit(self, half: Record) -> None:
        self._position += 100
        self.table.add_commit(half.position, self._position)
        self.op(half)

    def _add(self, record: Record) -> Record:
        self._position += 100
        record.position, record.size = self._position, 100
        record.queue_offset = self._offsets.get(record.topic, 0)
        self._offsets[record.topic] = record.queue_offset + 1
        self.table.add(record)
        return record

    def states(self) -> dict[str, str]:
        return {row.message_id: row.state.value for row in self.table.list()}


def test_each_state_is_told_by_the_records() -> None:
    log = Log()
    log.put(HALF_TOPIC, "open")
    log.commit(log.put(HALF_TOPIC, "done"))
    log.op(log.put(HALF_TOPIC, "undone"))
    log.put(HALF_TOPIC, "lost")
    log.put(MAX_CHECK_TOPIC, "lost", 15)
    assert log.states() == {"open": "prepared", "done": "committed", "undone": "rolled back", "lost": "given up"}
    row = next(row for row in log.table.list() if row.message_id == "lost")
    assert (row.topic, row.queue, row.producer_group, row.checks, row.size) == ("orders", 3, "g", 15, 100)


def test_a_decision_about_a_copy_is_one_about_all() -> None:
    log = Log()
    log.put(HALF_TOPIC, "a")
    log.put(HALF_TOPIC, "b")
    log.op(log.put(HALF_TOPIC, "a", 1))
    log.commit(log.put(HALF_TOPIC, "b", 1))
    assert log.states() == {"a": "rolled back", "b": "committed"}


def test_one_that_was_resumed_is_prepared_again() -> None:
    log = Log()
    log.put(HALF_TOPIC, "a")
    log.put(MAX_CHECK_TOPIC, "a", 15)
    again = log.put(HALF_TOPIC, "a")
    assert log.states() == {"a": "prepared"}
    log.put(MAX_CHECK_TOPIC, "a", 15)
    assert log.states() == {"a": "given up"}
    log.commit(again)
    assert log.states() == {"a": "committed"}


def test_an_op_older_than_the_half_at_its_offset_is_not_about_it() -> None:
    log = Log()
    log.op(Record(HALF_TOPIC, queue_offset=0))
    log.put(HALF_TOPIC, "a")
    assert log.states() == {"a": "prepared"}


# --- against a broker -------------------------------------------------------------------------------------------------


async def test_brokers_and_commit_logs_tell_the_same(broker: EmbeddedBroker, admin: Admin, tmp_path: Path) -> None:
    await asyncio.to_thread(broker.create_topic, "orders")
    # Each is decided at once: the broker hurries, and returns up what waits.
    for name, commit in (("done", True), ("undone", False)):
        await decide(admin, await prepare(admin, "orders", name), commit=commit)
    await prepare(admin, "orders", "lost")
    await wait_for_state(admin, "lost", State.GIVEN_UP)
    told = (await admin.transactions.list(frozenset(State))).items
    assert {row.message_id: row.state for row in told} == {
        "done": State.COMMITTED,
        "undone": State.ROLLED_BACK,
        "lost": State.GIVEN_UP,
    }
    assert all(row.producer_group == TRANSACTION_GROUP and row.topic == "orders" and row.size for row in told)
    read = await asyncio.to_thread(read_store, tmp_path / "home" / "store")
    assert [msgspec.structs.replace(row, broker="embedded") for row in read] == told
    assert [row.message_id for row in (await admin.transactions.list()).items] == ["lost"]
    assert await asyncio.to_thread(count_log_bytes, tmp_path / "home" / "store") > 0
    assert await read_bodies(admin, "orders") == [b"half done"]


async def test_what_was_given_up_is_resumed_and_then_committed(broker: EmbeddedBroker, admin: Admin) -> None:
    await asyncio.to_thread(broker.create_topic, "orders")
    await prepare(admin, "orders", "lost")
    row = await wait_for_state(admin, "lost", State.GIVEN_UP)
    asked: list[str] = []

    def check(message: Message) -> Decision:
        asked.append(message.transaction_id)
        return Decision.COMMIT

    async with TransactionalProducer(broker.nameserver, group=TRANSACTION_GROUP, check=check) as producer:
        # Its broker must know it before it asks.
        await producer.send("orders", b"hello")
        await producer._session.heartbeat()
        deed = await admin.transactions.resume(row)
        assert (deed.outcome, deed.reason) == ("resumed", "")
        row = await wait_for_state(admin, "lost", State.COMMITTED)
    assert asked[0] == "lost"
    assert sorted(await read_bodies(admin, "orders")) == [b"half lost", b"hello"]
    again = await admin.transactions.resume(row)
    assert (again.outcome, again.state) == ("skipped", State.COMMITTED)


async def test_a_prepared_one_is_discarded(admin: Admin, broker: EmbeddedBroker) -> None:
    await asyncio.to_thread(broker.create_topic, "orders")
    await prepare(admin, "orders", "open")
    deed = None
    # It may be asked about at this very moment, and then has another place.
    while deed is None or deed.outcome == "failed":
        row = await find_state(admin, "open")
        assert row is not None
        deed = await admin.transactions.discard(row)
        if row.state is not State.PREPARED:
            assert deed.outcome == "skipped"
            return
    assert deed.outcome == "discarded"
    assert (await wait_for_state(admin, "open", State.ROLLED_BACK)).message_id == "open"
    assert await read_bodies(admin, "orders") == []


async def test_a_place_that_is_none_is_refused_and_told(admin: Admin, broker: EmbeddedBroker) -> None:
    await asyncio.to_thread(broker.create_topic, "orders")
    await prepare(admin, "orders", "open")
    row = await find_state(admin, "open")
    assert isinstance(row, Transaction)
    prepared = msgspec.structs.replace(row, state=State.PREPARED, position=row.position + 1)
    assert (await admin.transactions.discard(prepared)).outcome == "failed"
    gone = msgspec.structs.replace(row, state=State.GIVEN_UP, broker="nobody")
    assert "has no master" in (await admin.transactions.resume(gone)).reason
    assert (await admin.transactions.view(row)).body == b"half open"
    assert (await admin.transactions.find(row.offset_id)).message_id == "open"
    with pytest.raises(ConfigError, match="txn list --state all"):
        await admin.transactions.find("nothing")


async def test_what_was_given_up_and_rolled_back_later_is_not_open(broker: EmbeddedBroker, admin: Admin) -> None:
    await asyncio.to_thread(broker.create_topic, "orders")
    lost, undone = await prepare(admin, "orders", "lost"), await prepare(admin, "orders", "undone")
    await wait_for_state(admin, "lost", State.GIVEN_UP)
    await wait_for_state(admin, "undone", State.GIVEN_UP)
    # A producer that was very slow.
    await decide(admin, undone, commit=False)
    assert {row.message_id: row.state for row in (await admin.transactions.list()).items} == {
        lost.message_id: State.GIVEN_UP
    }
    everything = (await admin.transactions.list(frozenset(State))).items
    assert {row.message_id: row.state for row in everything} == {
        "lost": State.GIVEN_UP,
        "undone": State.ROLLED_BACK,
    }
