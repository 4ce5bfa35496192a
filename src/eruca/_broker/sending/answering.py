"""Answers to sends: where a message is and how safe, told now or when disk and slaves have it.

Every answer, also a refusal, has MSG_REGION and TRACE_ON: the Java client reads them without looking whether they are
there.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eruca._broker.options import LiveOptions
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.topics import Topics
from eruca._ground.limits import BATCH_ANSWER_HEADER_BYTES_MAX
from eruca._net.answers import encode_refusal
from eruca._net.link import Link
from eruca._store.messagestore import MessageStore
from eruca._store.tables.saving import TableSaver
from eruca._wire.codes import FLAG_ONEWAY, ResponseCode, SerializeType
from eruca._wire.command import quote_text
from eruca._wire.frame import Command, encode_command
from eruca._wire.headers import SendMessageAnswerHeader, SendRefusedHeader
from eruca._wire.kernel.answers import encode_stored
from eruca.errors import ErucaError, RequestRefused, StoreError

# Looking a member of an enum up takes longer than comparing it.
_JSON: Final = SerializeType.JSON
_SUCCESS: Final = ResponseCode.SUCCESS


class Place(msgspec.Struct, gc=False):
    """Where messages were stored, as their sender is told, and the log position behind them."""

    queue_id: int
    queue_offset: int
    message_ids: str
    end: int


class _LateAnswer(msgspec.Struct, gc=False):
    """The answer to a send that is stored and not safe yet. Thousands wait, and the collector need not visit them."""

    answers: SendAnswers
    link: Link
    command: Command
    place: Place

    def __call__(self, code: ResponseCode) -> None:
        """Give the answer: this is how it went."""
        command = self.command
        if not command.flag & FLAG_ONEWAY:
            self.link.send(self.answers.encode_stored(command, self.place, code))


class SendAnswers:
    """Answers the send family."""

    def __init__(
        self,
        options: LiveOptions,
        store: MessageStore,
        topics: Topics,
        saver: TableSaver,
        acknowledgement: Acknowledgement,
    ) -> None:
        self._store = store
        self._topics = topics
        self._saver = saver
        self._acknowledgement = acknowledgement
        self._region, self._trace_on = options.now.region, options.now.trace_on
        self._refused = SendRefusedHeader(region=self._region, trace_on=self._trace_on)
        # What all answers to a send have between their queue and their message id.
        trace_on = b"true" if self._trace_on else b"false"
        self._told_to_all = b'","TRACE_ON":"%b","MSG_REGION":%b,"msgId":"' % (trace_on, quote_text(self._region))

    def answer(
        self, link: Link, command: Command, place: Place, waits: bool, topic: str, stored_topic: str = ""
    ) -> bytes | None:
        """Answer, now or later. Without its topics on the disk a message would not be found after a crash."""
        unsaved = self._topics.unsaved
        if unsaved and (topic in unsaved or stored_topic in unsaved):
            self._answer_when_topic_saved(link, command, place, waits)
            return None
        if self._acknowledgement.needs_wait(waits):
            self._answer_when_safe(link, command, place, waits)
            return None
        return self.encode_stored(command, place, _SUCCESS)

    def answer_dropped(self, link: Link, command: Command, topic: str, queue_id: int, waits: bool) -> bytes | None:
        """Answer for messages that were stored before, and are not stored again."""
        # Nobody knows any more where they are; but disk and slaves must have them before their sender is told so.
        return self.answer(link, command, Place(queue_id, -1, "", self._store.log.tail), waits, topic)

    def _answer_when_topic_saved(self, link: Link, command: Command, place: Place, waits: bool) -> None:
        """A message that was acknowledged must be found after a crash, so its topic must be there too."""
        replication = self._acknowledgement
        term = replication.term
        command.body = b""
        answer = _LateAnswer(self, link, command, place)

        def when_saved(error: StoreError | None) -> None:
            if replication.term != term:
                answer(ResponseCode.FLUSH_SLAVE_TIMEOUT)
            elif error is not None:
                answer(ResponseCode.FLUSH_DISK_TIMEOUT)
            else:
                replication.when_done(place.end, answer, waits=waits)

        self._saver.when_saved("topics", when_saved)

    def _answer_when_safe(self, link: Link, command: Command, place: Place, waits: bool) -> None:
        """Answer now or later, without a task: with sync flush or a SYNC_MASTER every message comes by here."""
        # It is stored, and thousands may wait.
        command.body = b""
        self._acknowledgement.when_done(place.end, _LateAnswer(self, link, command, place), waits=waits)

    def encode_stored(self, command: Command, place: Place, code: int) -> bytes:
        """Encode the answer to a send that was stored: where, and how safe it is."""
        if command.serialization is _JSON:
            # By hand: every message comes by here.
            ids, offset = place.message_ids, place.queue_offset
            return encode_stored(code, place.queue_id, self._told_to_all, ids, offset, command.opaque)
        answer = SendMessageAnswerHeader(
            message_id=place.message_ids,
            queue_id=place.queue_id,
            queue_offset=place.queue_offset,
            region=self._region,
            trace_on=self._trace_on,
        )
        return encode_command(command.answer(int(code), answer), BATCH_ANSWER_HEADER_BYTES_MAX)

    def refuse(self, link: Link, command: Command, error: ErucaError) -> bytes | None:
        """Encode the answer to a send that was not stored."""
        if not isinstance(error, RequestRefused):
            error = RequestRefused(ResponseCode.SYSTEM_ERROR, str(error))
        if command.is_oneway:
            return encode_refusal(command, error, link.peer)
        return encode_command(command.answer(error.code, self._refused, remark=error.remark))
