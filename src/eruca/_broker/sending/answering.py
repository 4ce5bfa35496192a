"""Responses to sends: where a message is and how safe, sent now or once it is on disk and on the slaves.

Every response, even a refusal, has MSG_REGION and TRACE_ON: the Java client reads them without checking whether they
are present.
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

# Looking up an enum member takes longer than comparing it.
_JSON: Final = SerializeType.JSON
_SUCCESS: Final = ResponseCode.SUCCESS


class Place(msgspec.Struct, gc=False):
    """Where messages were stored, as sent to their sender, and the log position after them."""

    queue_id: int
    queue_offset: int
    message_ids: str
    end: int


class _LateAnswer(msgspec.Struct, gc=False):
    """The response to a send that is stored but not safe yet. Thousands wait; the garbage collector skips them."""

    answers: SendAnswers
    link: Link
    command: Command
    place: Place

    def __call__(self, code: ResponseCode) -> None:
        """Send the response with the result."""
        command = self.command
        if not command.flag & FLAG_ONEWAY:
            self.link.send(self.answers.encode_stored(command, self.place, code))


class SendAnswers:
    """Builds the responses of the send family."""

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
        # The part between queue and message id, the same in all responses.
        trace_on = b"true" if self._trace_on else b"false"
        self._told_to_all = b'","TRACE_ON":"%b","MSG_REGION":%b,"msgId":"' % (trace_on, quote_text(self._region))

    def answer(
        self, link: Link, command: Command, place: Place, waits: bool, topic: str, stored_topic: str = ""
    ) -> bytes | None:
        """Respond now or later. Unless its topic is saved, a message would not be found after a crash."""
        unsaved = self._topics.unsaved
        if unsaved and (topic in unsaved or stored_topic in unsaved):
            self._answer_when_topic_saved(link, command, place, waits)
            return None
        if self._acknowledgement.needs_wait(waits):
            self._answer_when_safe(link, command, place, waits)
            return None
        return self.encode_stored(command, place, _SUCCESS)

    def answer_dropped(self, link: Link, command: Command, topic: str, queue_id: int, waits: bool) -> bytes | None:
        """Respond for messages that were stored before, and are not stored again."""
        # Their position is no longer known; but they must be on disk and slaves before the sender is told so.
        return self.answer(link, command, Place(queue_id, -1, "", self._store.log.tail), waits, topic)

    def _answer_when_topic_saved(self, link: Link, command: Command, place: Place, waits: bool) -> None:
        """Respond once the topic is saved: without it, an acknowledged message would not be found after a crash."""
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
        """Respond now or later, without a task: with sync flush or a SYNC_MASTER every message takes this path."""
        # The message is stored, and thousands may wait, so the body is dropped.
        command.body = b""
        self._acknowledgement.when_done(place.end, _LateAnswer(self, link, command, place), waits=waits)

    def encode_stored(self, command: Command, place: Place, code: int) -> bytes:
        """Encode the response to a stored send: where it is, and how safe."""
        if command.serialization is _JSON:
            # Encoded by hand: every message takes this path.
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
        """Encode the response to a send that was not stored."""
        if not isinstance(error, RequestRefused):
            error = RequestRefused(ResponseCode.SYSTEM_ERROR, str(error))
        if command.is_oneway:
            return encode_refusal(command, error, link.peer)
        return encode_command(command.answer(error.code, self._refused, remark=error.remark))
