"""Transactions: a producer decides what becomes of a half message.

Sending put the half into RMQ_SYS_TRANS_HALF_TOPIC, where no consumer sees it. Committing stores it once more in its own
topic; committing and rolling back both leave an op record that names the half's offset, so that it is not asked about.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from eruca.broker.checkback import CheckBackService
from eruca.broker.halves import QUEUE, make_committed, make_copy, make_op, read_half
from eruca.broker.parts import Parts
from eruca.broker.refusals import refuse, refuse_store_error
from eruca.broker.stored import read_message
from eruca.core.transactions import Half
from eruca.errors import InvalidName, RequestRefused, StoreError, WireError
from eruca.net.handlers import HandlerTable, Reply, Request, Result
from eruca.wire.codes import RequestCode, ResponseCode
from eruca.wire.headers import EndTransactionHeader
from eruca.wire.ids import decode_offset_id
from eruca.wire.names import HALF_TOPIC, MAX_CHECK_TOPIC
from eruca.wire.properties import PGROUP
from eruca.wire.record import Message
from eruca.wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

log = logging.getLogger(__name__)

# Decisions that are remembered to tell a second one for the same transaction (a slow answer and the answer to a check)
# from the first. The op queue would tell as well, but only after a search.
_REMEMBERED_MAX = 10_000


class TransactionHandlers:
    """Answers 37 and 323, and owns the check-back service."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.checks = CheckBackService(parts, self.keep_decisions)
        # Roots of transactions that were decided lately: the offset of the first half.
        self._decided: OrderedDict[int, None] = OrderedDict()
        # Those of them that were committed but whose op record could not be written yet, by root.
        self._unkept: dict[int, Half] = {}

    def register(self, table: HandlerTable) -> None:
        """Take the codes."""
        table.add(RequestCode.END_TRANSACTION, self.end)
        table.add(RequestCode.RESUME_CHECK_HALF_MESSAGE, self.resume)

    def start(self) -> None:
        """Begin to ask about halves; this broker is the master from now on."""
        # What was decided before may stand at other offsets in the log of today.
        self._decided.clear()
        self._unkept.clear()
        self.checks.start()

    async def stop(self) -> None:
        """Ask no more."""
        await self.checks.stop()

    # -- deciding ----------------------------------------------------------------------------------------------------

    def end(self, request: Request) -> Result:
        """Commit a half or roll it back; a producer that does not know yet gets no answer, and is asked later."""
        header: EndTransactionHeader = request.header
        if not self._parts.writable:
            refuse(ResponseCode.SLAVE_NOT_AVAILABLE, "Message store is slave mode, so end transaction is forbidden. ")
        if header.decision not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            log.debug("%s does not know yet what becomes of transaction %s", request.link.peer, header.message_id)
            return None
        message = self._find_half(header)
        half = read_half(message, self._parts.options.transaction_timeout_ms)
        if half.root in self._decided:
            log.info("transaction %s of %s was decided before", header.message_id, request.link.peer)
            self.keep_decisions()
        elif header.decision == TRANSACTION_COMMIT:
            self._commit(message)
            # From here on it is committed, whatever becomes of the op record.
            self._remember(half)
            self._unkept[half.root] = half
            self.keep_decisions()
        else:
            self._roll_back(half)
        return self._acknowledge(request)

    def _acknowledge(self, request: Request) -> Result:
        # Clients ask for no answer as a rule, and nothing is lost without one: the half is safe, and is asked about.
        if request.command.is_oneway or not self._parts.replication.needs_wait(True):
            return Reply()
        return self._answer_when_safe()

    async def _answer_when_safe(self) -> Reply:
        code = await self._parts.replication.wait(self._parts.store.commitlog.tail)
        return Reply(code=code, remark=None if code == ResponseCode.SUCCESS else code.name)

    def _find_half(self, header: EndTransactionHeader) -> Message:
        """The half a decision is about; every field that names it must agree."""
        store = self._parts.store
        # A decision often follows its half at once, and a transient buffer may still have that.
        store.commit()
        message = read_message(store, header.position)
        if message is None or message.topic != HALF_TOPIC or message.queue_id != QUEUE:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if message.get_property(PGROUP) != header.producer_group:
            refuse(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if message.queue_offset != header.half_offset:
            refuse(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return message

    def _commit(self, half: Message) -> None:
        committed = make_committed(half)
        if committed is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the half message does not say where it goes")
        try:
            self._parts.store.append(committed)
        except StoreError as error:
            raise refuse_store_error(error, self._parts.store) from error
        except InvalidName as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._parts.stats.on_put(committed.topic, 1, committed.size, committed.queue_id)

    def _roll_back(self, half: Half) -> None:
        """Write the op record. Nothing else says that a half is rolled back, so without it nothing is decided."""
        try:
            self._write_ops(half)
        except StoreError as error:
            raise refuse_store_error(error, self._parts.store) from error
        self._remember(half)

    def keep_decisions(self) -> None:
        """Write the op records of committed halves that have none yet. Without one, the producer is asked again."""
        for root, half in list(self._unkept.items()):
            try:
                self._write_ops(half)
            except StoreError as error:
                log.error("the decision about the half message at offset %d is not kept yet: %s", half.offset, error)
                return
            self._unkept.pop(root, None)

    def _write_ops(self, half: Half) -> None:
        parts = self._parts
        # The root as well: there may be a younger copy than the one this decision is about.
        for offset in dict.fromkeys((half.offset, half.root)):
            op = parts.store.append(make_op(offset, parts.store_host, parts.clock.now_ms()))
            parts.stats.on_own(op.size)

    def _remember(self, half: Half) -> None:
        self._decided[half.root] = None
        if len(self._decided) > _REMEMBERED_MAX:
            oldest, _ = self._decided.popitem(last=False)
            self._unkept.pop(oldest, None)

    # -- trying again ------------------------------------------------------------------------------------------------

    def resume(self, request: Request) -> Result:
        """Ask again about a half that was given up."""
        parts = self._parts
        try:
            message = read_message(parts.store, decode_offset_id(request.header.message_id or "").position)
        except WireError:
            message = None
        if message is None or message.topic not in (MAX_CHECK_TOPIC, HALF_TOPIC):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"Exception was thrown when putting message back to {HALF_TOPIC}."
            )
        # One that was given up names its root itself, if it was ever copied.
        root = message.queue_offset if message.topic == HALF_TOPIC else None
        copy = make_copy(message, root, checks=0)
        try:
            parts.stats.on_own(parts.store.append(copy).size)
        except StoreError as error:
            log.error("the half message at %d cannot be put back: %s", message.position, error)
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"Put message back to {HALF_TOPIC} failed.") from error
        return self._acknowledge(request)
