"""Transactions: a producer commits or rolls back a half message.

Sending stored the half in RMQ_SYS_TRANS_HALF_TOPIC, where no consumer sees it. Committing stores it once more in its
own topic; committing and rolling back both write an op record with the half's offset, so that it is not checked.
"""

from __future__ import annotations

import logging

from eruca._broker.administering.stats import Stats
from eruca._broker.options import LiveOptions
from eruca._broker.refusals import refuse, refuse_store_error
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.sending.stored import find_message
from eruca._broker.standing import Standing
from eruca._broker.transactions.decisions import COMMITTED, ROLLED_BACK, Decisions
from eruca._broker.transactions.halves import make_committed, make_copy, read_half
from eruca._net.handlers import HandlerTable, Reply, Request, Result
from eruca._store.messagestore import MessageStore
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.halves import HALF_QUEUE
from eruca._wire.headers import EndTransactionHeader
from eruca._wire.ids import decode_offset_id
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC
from eruca._wire.properties import PGROUP
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from eruca.errors import InvalidName, RequestRefused, StoreError, WireError

log = logging.getLogger(__name__)


class TransactionHandlers:
    """Handles 37 and 323."""

    def __init__(
        self,
        options: LiveOptions,
        standing: Standing,
        store: MessageStore,
        stats: Stats,
        acknowledgement: Acknowledgement,
        decisions: Decisions,
    ) -> None:
        self._options = options
        self._standing = standing
        self._store = store
        self._stats = stats
        self._acknowledgement = acknowledgement
        self._decisions = decisions

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.END_TRANSACTION, self.end)
        table.add(RequestCode.RESUME_CHECK_HALF_MESSAGE, self.resume)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def end(self, request: Request) -> Result:
        """Commit or roll back a half; an undecided producer gets no response, and is asked later."""
        header: EndTransactionHeader = request.header
        if not self._standing.writable:
            refuse(ResponseCode.SLAVE_NOT_AVAILABLE, "Message store is slave mode, so end transaction is forbidden. ")
        if header.decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            log.debug("%s has not decided transaction %s yet", request.link.peer, header.message_id)
            return None
        message = self._find_half(header)
        half = read_half(message, self._options.now.transaction_timeout_ms)
        if self._decisions.has(half):
            log.debug("transaction %s of %s was already decided", header.message_id, request.link.peer)
            self._decisions.keep()
        elif header.decision == TRANSACTION_COMMIT:
            self._commit(message)
            self._decisions.note_committed(half)
            self._decisions.count(message, COMMITTED)
        else:
            try:
                self._decisions.roll_back(half)
            except StoreError as error:
                raise refuse_store_error(error, self._store) from error
            self._decisions.count(message, ROLLED_BACK)
        return self._acknowledge(request)

    def _acknowledge(self, request: Request) -> Result:
        # Clients usually request no response, and nothing is lost without one: the half is safe, and will be checked.
        if request.command.is_oneway or not self._acknowledgement.needs_wait(True):
            return Reply()
        return self._answer_when_safe()

    async def _answer_when_safe(self) -> Reply:
        code = await self._acknowledgement.wait(self._store.log.tail)
        return Reply(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)

    def _find_half(self, header: EndTransactionHeader) -> Record:
        """Find the half of a decision; every field that identifies it must match."""
        store = self._store
        # A decision often follows its half at once, which may still be in a transient buffer.
        store.commit()
        message = find_message(store, header.position)
        if message is None or message.topic != HALF_TOPIC or message.queue_id != HALF_QUEUE:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if message.get_property(PGROUP) != header.producer_group:
            refuse(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if message.queue_offset != header.half_offset:
            refuse(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return message

    def _commit(self, half: Record) -> None:
        committed = make_committed(half)
        if committed is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the half message has no destination")
        try:
            self._store.append(committed)
        except StoreError as error:
            raise refuse_store_error(error, self._store) from error
        except InvalidName as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._stats.on_put(committed.topic, 1, committed.size, committed.queue_id)

    # -- retrying ----------------------------------------------------------------------------------------------------

    def resume(self, request: Request) -> Result:
        """Check a half again that was given up."""
        try:
            message = find_message(self._store, decode_offset_id(request.header.message_id or "").position)
        except WireError:
            message = None
        if message is None or message.topic not in (MAX_CHECK_TOPIC, HALF_TOPIC):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"Exception was thrown when putting message back to {HALF_TOPIC}."
            )
        # A half that was given up already names its root, if it was ever copied.
        root = message.queue_offset if message.topic == HALF_TOPIC else None
        copy = make_copy(message, root, checks=0)
        try:
            self._stats.on_own(self._store.append(copy).size)
        except StoreError as error:
            log.error("cannot put back the half message at %d: %s", message.position, error)
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"Put message back to {HALF_TOPIC} failed.") from error
        return self._acknowledge(request)
