"""Sending: from a request to a stored message and its response.

A request becomes a draft (`drafting`), the draft is stored (`appending`, or `onceappending` for messages with marks),
and the response tells its sender where it is and how safe (`answering`). Batches have their own path (`batches`).
"""

from __future__ import annotations

from typing import Final

from eruca._broker.administering.stats import Stats
from eruca._broker.refusals import refuse_store_error
from eruca._broker.sending.answering import Place, SendAnswers
from eruca._broker.sending.appending import Appending
from eruca._broker.sending.batches import BatchSends
from eruca._broker.sending.drafting import Drafting
from eruca._broker.sending.once import Once
from eruca._broker.sending.onceappending import OnceAppending
from eruca._broker.standing import Standing
from eruca._net.handlers import HandlerTable
from eruca._net.link import Link, ShortAnswer
from eruca._store.messagestore import MessageStore
from eruca._wire.codes import FLAG_ONEWAY, RequestCode
from eruca._wire.frame import Command
from eruca._wire.headers import AnySendHeader, SendMessageHeader, SendMessageV2Header
from eruca._wire.ids import encode_offset_id
from eruca._wire.once import ONCE_GROUP, ONCE_MARK, drop_mark
from eruca.errors import InvalidName, RequestRefused, StoreError, WireError

# Comparing with a member of an enum takes longer than with a number.
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)

_HEADERS: Final[dict[int, type[SendMessageHeader] | type[SendMessageV2Header]]] = {
    int(RequestCode.SEND_MESSAGE): SendMessageHeader,
    int(RequestCode.SEND_MESSAGE_V2): SendMessageV2Header,
    int(RequestCode.SEND_BATCH_MESSAGE): SendMessageV2Header,
}


class SendHandlers:
    """Handles the send family."""

    def __init__(
        self,
        standing: Standing,
        store: MessageStore,
        stats: Stats,
        once: Once,
        drafting: Drafting,
        answers: SendAnswers,
    ) -> None:
        self._standing = standing
        self._store = store
        self._once = once
        self._drafting = drafting
        self._answers = answers
        self._appending = Appending(store, stats, drafting.wants_timer)
        self._once_appending = OnceAppending(self._appending, once, store, stats)
        self._batches = BatchSends(standing, store, stats, drafting, self._appending, self._once_appending, answers)

    def register(self, table: HandlerTable) -> None:
        """Register the handlers of the send family."""
        table.add_raw(RequestCode.SEND_MESSAGE, self.handle)
        table.add_raw(RequestCode.SEND_MESSAGE_V2, self.handle)
        table.add_raw(RequestCode.SEND_BATCH_MESSAGE, self.handle)

    def handle(self, link: Link, command: Command) -> ShortAnswer:
        """Store a message and respond with its position."""
        try:
            header: AnySendHeader = command.decode_header(_HEADERS[command.code])
            marked = header.producer_group == ONCE_GROUP
            if marked and not self._once.is_ready and self._standing.writable:
                return self._store_when_ready(link, command)
            if header.batch or command.code == _BATCH:
                return self._batches.take(link, command, header, marked=marked)
            has_mark = header.properties is not None and ONCE_MARK in header.properties
            if has_mark and not marked:
                header.properties = drop_mark(header.properties or "")
            draft = self._drafting.build(link, command, header)
            message = draft.message
            if not (marked and has_mark):
                self._appending.append(message)
            elif not self._once_appending.append(message, header.topic, header.queue_id):
                return self._answers.answer_dropped(link, command, header.topic, header.queue_id, draft.waits)
        except (RequestRefused, WireError, StoreError, InvalidName) as error:
            return self._answers.refuse(link, command, error)
        if command.flag & FLAG_ONEWAY:
            return None
        message_id = encode_offset_id(message.store_host, message.position)
        place = Place(draft.queue_id, message.queue_offset, message_id, message.position + message.size)
        return self._answers.answer(link, command, place, draft.waits, header.topic, message.topic)

    async def _store_when_ready(self, link: Link, command: Command) -> bytes | None:
        """Store messages with marks once there is a table of marks."""
        try:
            await self._once.get_ready()
        except StoreError as error:
            return self._answers.refuse(link, command, refuse_store_error(error, self._store))
        answer = self.handle(link, command)
        return answer if answer is None or isinstance(answer, bytes) else await answer
