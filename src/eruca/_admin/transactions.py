"""Transactions: list those that are prepared, decided or given up; resume those given up, discard those prepared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection

import msgspec

from eruca._admin.connection import Connection, explain_no_master
from eruca._admin.results import LIMIT, Listed, Problem, cut_list
from eruca._admin.storedmessages import StoredMessage, describe_record
from eruca._admin.targets import BrokerRow, ask_each, find_targets, gather_bounded
from eruca._admin.transactiontable import UNDECIDED, State, Transaction, TransactionTable
from eruca._client.message import Message
from eruca._ground.limits import POSITION_MAX
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.halves import HALF_QUEUE, PROGRESS_GROUP
from eruca._wire.headers import EndTransactionHeader, MessageIdHeader, QueryMessageHeader
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC, OP_HALF_TOPIC
from eruca._wire.properties import UNIQ_KEY
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, get_transaction
from eruca.errors import ConfigError, ErucaError, NetError

# A query by unique id finds the committed message, its retries, and others with the same hash.
_QUERY_COUNT_MAX = 64


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of resuming or discarding one transaction."""

    message_id: str
    # `resumed`, `discarded`, `planned`, `skipped` or `failed`, with the `reason`.
    outcome: str
    # Its state before; None if the transaction is unknown.
    state: State | None
    reason: str = ""


class Transactions:
    """Lists, resumes and discards transactions: `admin.transactions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self,
        states: Collection[State] = UNDECIDED,
        *,
        limit: int = LIMIT,
        progress: Callable[[int], None] | None = None,
    ) -> Listed[Transaction]:
        """Return the transactions in some states, by broker and in the order in which they began.

        Undecided ones are quick to list: they are after the position up to which their broker has checked. Others take
        longer: to tell committed from rolled back, brokers are asked for the message of each. The same is true for a
        broker that has given some up, because they may have been decided since. `progress` is called with the number of
        records read.
        """
        rows, problems = await find_transactions(self._connection, states, progress=progress)
        return cut_list(rows, limit, problems)

    async def find(self, name: str) -> Transaction:
        """Return the transaction with a message id or an offset id, in any state. Raises ConfigError."""
        rows, problems = await find_transactions(self._connection, frozenset(State))
        for row in rows:
            if name in (row.message_id, row.offset_id):
                return row
        if problems:
            raise NetError(f"{problems[0].where} does not report its transactions: {problems[0].error}")
        raise ConfigError(f"there is no transaction {name}", hint="eruca txn list --state all lists them")

    async def view(self, row: Transaction) -> StoredMessage:
        """Return the message of a transaction, with its body."""
        # By the broker's name: the address in its id is the one the broker had when it stored the half.
        connection = self._connection
        record = await connection.calls.view_message(await _find_address(connection, row), row.position)
        return describe_record(record, row.broker)

    async def resume(self, row: Transaction, *, dry_run: bool = False) -> Deed:
        """Make a broker ask the producers again about a transaction it has given up."""
        if row.state is not State.GIVEN_UP:
            return _tell(row, "skipped", f"it is {row.state.value}; only those that were given up can be resumed")
        if dry_run:
            return _tell(row, "planned")
        try:
            await self._connection.ask(
                await _find_address(self._connection, row),
                RequestCode.RESUME_CHECK_HALF_MESSAGE,
                MessageIdHeader(message_id=row.offset_id),
            )
        except ErucaError as error:
            return _tell(row, "failed", str(error))
        return _tell(row, "resumed")

    async def discard(self, row: Transaction, *, dry_run: bool = False) -> Deed:
        """Roll back a prepared transaction in place of its producer, which is no longer asked about it."""
        if row.state is not State.PREPARED:
            return _tell(row, "skipped", f"it is {row.state.value}; only prepared ones can be discarded")
        if dry_run:
            return _tell(row, "planned")
        header = EndTransactionHeader(
            producer_group=row.producer_group,
            half_offset=row.offset,
            position=row.position,
            decision=TRANSACTION_ROLLBACK,
            message_id=row.message_id,
            from_check=False,
            transaction_id=row.message_id,
        )
        connection = self._connection
        try:
            # Producers send it one way, but a broker answers if asked to.
            request = make_request(RequestCode.END_TRANSACTION, header)
            await connection.calls.ask(await _find_address(connection, row), request)
        except ErucaError as error:
            return _tell(row, "failed", str(error))
        return _tell(row, "discarded")


async def find_transactions(
    connection: Connection, states: Collection[State] = UNDECIDED, *, progress: Callable[[int], None] | None = None
) -> tuple[list[Transaction], list[Problem]]:
    """Return the transactions in some states, by broker and in the order in which they began."""
    found, problems = await ask_each(
        await find_targets(connection), lambda row: _find_at(connection, row, states, progress)
    )
    return [transaction for _, part in found for transaction in part], problems


async def _find_at(
    connection: Connection, row: BrokerRow, states: Collection[State], progress: Callable[[int], None] | None
) -> list[Transaction]:
    """Return the transactions of one broker."""
    wants_decided = not UNDECIDED.issuperset(states)
    rows = await _read_table(connection, row.broker, row.address, progress, from_start=wants_decided)
    if not wants_decided and any(each.state is State.GIVEN_UP for each in rows):
        # Their halves, and late decisions about them, are before the position up to which the broker checked.
        rows = await _read_table(connection, row.broker, row.address, progress, from_start=True)
    # A slow producer may have committed one since it was given up.
    doubtful = [
        each for each in rows if each.state is State.GIVEN_UP or (each.state is State.ROLLED_BACK and wants_decided)
    ]
    looks = await gather_bounded(doubtful, lambda each: _look_for_commit(connection, row.address, each))
    for look in looks:
        if isinstance(look, ErucaError):
            raise look
    judged = {before.position: look for before, look in zip(doubtful, looks, strict=True)}
    found = [judged.get(each.position, each) for each in rows]
    return [
        msgspec.structs.replace(each, broker=row.broker)
        for each in found
        if isinstance(each, Transaction) and each.state in states
    ]


async def _read_table(
    connection: Connection, broker: str, address: str, progress: Callable[[int], None] | None, *, from_start: bool
) -> list[Transaction]:
    table = TransactionTable()
    async for record in _read_records(connection, broker, address, from_start=from_start):
        table.add(record)
        if progress is not None:
            progress(1)
    return list(table.list())


async def _read_records(
    connection: Connection, broker: str, address: str, *, from_start: bool
) -> AsyncIterator[Record]:
    """Yield all half, given-up and op records of a broker, or those after the position up to which it has checked.

    The ops come last: read first, they would miss the decision about a half that arrives meanwhile. Records that were
    given up, and their copies if they were resumed, are put in the order of the log.
    """
    # Before the halves, because a check may end while they are read.
    half_start, op_start = None, None
    if not from_start:
        half_start = await _find_progress(connection, address, HALF_TOPIC)
        op_start = await _find_progress(connection, address, OP_HALF_TOPIC)
    records: list[Record] = []
    for topic, start in ((HALF_TOPIC, half_start), (MAX_CHECK_TOPIC, None)):
        async for message in _read_topic(connection, broker, topic, start):
            message.record.body = b""
            records.append(message.record)
    for record in sorted(records, key=lambda record: record.position):
        yield record
    async for record in connection.read_unlisted(address, MessageQueue(broker, HALF_QUEUE, OP_HALF_TOPIC), op_start):
        yield record


async def _find_progress(connection: Connection, address: str, topic: str) -> int | None:
    return await connection.calls.read_offset(address, PROGRESS_GROUP, MessageQueue("", HALF_QUEUE, topic))


async def _read_topic(connection: Connection, broker: str, topic: str, start: int | None) -> AsyncIterator[Message]:
    route = await connection.find_route(topic)
    if route is None:
        return
    for queue in route.read_queues:
        if queue.broker_name == broker:
            async for message in connection.read_queue(queue, start):
                yield message


async def _look_for_commit(connection: Connection, address: str, row: Transaction) -> Transaction:
    """Return the transaction as committed if its topic has the message."""
    header = QueryMessageHeader(
        topic=row.topic,
        key=row.message_id,
        max_num=_QUERY_COUNT_MAX,
        begin_timestamp=0,
        end_timestamp=POSITION_MAX,
        unique_key_query=True,
    )
    for record in await connection.calls.query_messages(address, header):
        if get_transaction(record.sys_flag) == TRANSACTION_COMMIT and record.get_property(UNIQ_KEY) == row.message_id:
            return msgspec.structs.replace(row, state=State.COMMITTED, committed_position=record.position)
    return row


async def _find_address(connection: Connection, row: Transaction) -> str:
    """Return the address of the master that has the transaction."""
    address = (await connection.list_masters()).get(row.broker)
    if address is None:
        raise explain_no_master(row.broker)
    return address


def _tell(row: Transaction, outcome: str, reason: str = "") -> Deed:
    return Deed(message_id=row.message_id, outcome=outcome, state=row.state, reason=reason)
