"""Sending: from a request to a stored message and its answer.

Checks come in the order of a Java broker, because the first that fails decides the code a client sees. Every answer,
also a refusal, has MSG_REGION and TRACE_ON: the Java client reads them without looking whether they are there.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from eruca.broker.batches import make_messages, unpack_batch
from eruca.broker.mapping import TIMER_MARK, DelayLevels, find_due_time, map_half, map_timer
from eruca.broker.once import ONCE_GROUP, ONCE_MARK, OnceMark, drop_mark, read_mark
from eruca.broker.parts import Parts
from eruca.broker.refusals import FAQ, refuse, refuse_store_error, refuse_topic_name, refuse_unless_writable
from eruca.errors import ErucaError, InvalidName, MessageIllegal, RequestRefused, StoreError, WireError
from eruca.limits import BATCH_ANSWER_HEADER_BYTES_MAX
from eruca.net.handlers import HandlerTable
from eruca.net.link import Answer, Link, encode_refusal
from eruca.store.encodedbatch import BatchFacts, StoredBatch
from eruca.wire import hotsend
from eruca.wire.batch import BatchItem, decode_batch, find_ends
from eruca.wire.bodies import TopicConfig
from eruca.wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode, SerializeType
from eruca.wire.command import quote_text
from eruca.wire.frame import Command, encode_command
from eruca.wire.headers import (
    AnySendHeader,
    SendMessageAnswerHeader,
    SendMessageHeader,
    SendMessageV2Header,
    SendRefusedHeader,
)
from eruca.wire.host import pack_host
from eruca.wire.ids import encode_offset_id
from eruca.wire.names import DLQ_PREFIX, FORBIDDEN_TO_SEND, READ, RETRY_PREFIX, WRITE
from eruca.wire.properties import does_wait, get_property, is_half
from eruca.wire.record import Message
from eruca.wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK, set_host_bits

# Looking a member of an enum up takes longer than comparing it.
_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE
_JSON: Final = SerializeType.JSON
_SUCCESS: Final = ResponseCode.SUCCESS
_VERSION_HONOURS_MAX_TIMES = 121
_HOST_NOTE = "host"
_LEVEL_DIGITS_MAX = 10
_WAIT = b"\x02WAIT\x01true"
_WAIT_AMONG = _WAIT + b"\x02"


class Draft(msgspec.Struct, gc=False):
    """A message that is ready to be stored, the queue its sender is told, and whether it waits for disk and slaves."""

    message: Message
    queue_id: int
    waits: bool


class _Place(msgspec.Struct, gc=False):
    """Where messages were stored, as their sender is told, and the log position behind them."""

    queue_id: int
    queue_offset: int
    message_ids: str
    end: int


class _LateAnswer(msgspec.Struct, gc=False):
    """The answer to a send that is stored and not safe yet. Thousands wait, and the collector need not visit them."""

    handlers: SendHandlers
    link: Link
    command: Command
    place: _Place

    def __call__(self, code: ResponseCode) -> None:
        """Give the answer: this is how it went."""
        command = self.command
        if not command.flag & FLAG_ONEWAY:
            self.link.send(self.handlers.encode_stored(command, self.place, code))


class SendHandlers:
    """Answers the send family."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._topics = parts.topics
        options = parts.options
        self.delays = DelayLevels(parts.store.options.delay_levels)
        self._refused = SendRefusedHeader(region=options.region, trace_on=options.trace_on)
        # What all answers to a send have between their queue and their message id.
        trace_on = b"true" if options.trace_on else b"false"
        self._told_to_all = b'","TRACE_ON":"%b","MSG_REGION":%b,"msgId":"' % (trace_on, quote_text(options.region))
        self._cluster_property = f"CLUSTER\x01{options.cluster}".encode()

    def register(self, table: HandlerTable) -> None:
        """Take the codes of the send family."""
        table.add_raw(RequestCode.SEND_MESSAGE, lambda link, command: self.handle(link, command, SendMessageHeader))
        table.add_raw(
            RequestCode.SEND_MESSAGE_V2, lambda link, command: self.handle(link, command, SendMessageV2Header)
        )
        table.add_raw(
            RequestCode.SEND_BATCH_MESSAGE, lambda link, command: self.handle(link, command, SendMessageV2Header)
        )

    def handle(
        self, link: Link, command: Command, header_type: type[SendMessageHeader] | type[SendMessageV2Header]
    ) -> Answer:
        """Store what was sent and say where."""
        try:
            header: AnySendHeader = command.decode_header(header_type)
            marked = header.producer_group == ONCE_GROUP
            if marked and not self._parts.once.is_ready and self._parts.writable:
                return self._store_when_ready(link, command, header_type)
            if header.batch or command.code == _BATCH:
                return self._store_batch(link, command, header, marked)
            if header.properties is not None and ONCE_MARK in header.properties:
                if marked:
                    return self._store_once(link, command, header)
                header.properties = drop_mark(header.properties)
            draft = self.build(link, command, header)
            message = draft.message
            self._append(message)
        except (RequestRefused, WireError, StoreError, InvalidName) as error:
            return self._encode_refused(link, command, error)
        self._parts.stats.on_put(message.topic, 1, message.size, message.queue_id)
        message_id = encode_offset_id(message.store_host, message.position)
        place = _Place(draft.queue_id, message.queue_offset, message_id, message.position + message.size)
        return self._answer(link, command, place, draft.waits, header.topic, message.topic)

    def _append(self, message: Message) -> None:
        try:
            self._store.append(message)
        except StoreError as error:
            raise self._refuse_unstored(error) from error

    def _refuse_unstored(self, error: StoreError) -> RequestRefused:
        self._parts.stats.put_failures += 1
        return refuse_store_error(error, self._store)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answer(
        self, link: Link, command: Command, place: _Place, waits: bool, topic: str, stored_topic: str = ""
    ) -> Answer:
        """Answer, now or later. Without its topics on the disk a message would not be found after a crash."""
        unsaved = self._topics.unsaved
        if unsaved and (topic in unsaved or stored_topic in unsaved):
            self._answer_when_topic_saved(link, command, place, waits)
            return None
        if self._parts.replication.needs_wait(waits):
            self._answer_when_safe(link, command, place, waits)
            return None
        return self.encode_stored(command, place, _SUCCESS)

    def _answer_when_topic_saved(self, link: Link, command: Command, place: _Place, waits: bool) -> None:
        """A message that was acknowledged must be found after a crash, so its topic must be there too."""
        replication = self._parts.replication
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

        self._parts.saver.when_saved("topics", when_saved)

    def _answer_when_safe(self, link: Link, command: Command, place: _Place, waits: bool) -> None:
        """Answer now or later, without a task: with sync flush or a SYNC_MASTER every message comes by here."""
        # It is stored, and thousands may wait.
        command.body = b""
        self._parts.replication.when_done(place.end, _LateAnswer(self, link, command, place), waits=waits)

    def encode_stored(self, command: Command, place: _Place, code: int) -> bytes:
        """Encode the answer to a send that was stored: where, and how safe it is."""
        if command.serialization is _JSON:
            # By hand: every message comes by here.
            ids, offset = place.message_ids, place.queue_offset
            return hotsend.encode_stored(code, place.queue_id, self._told_to_all, ids, offset, command.opaque)
        options = self._parts.options
        answer = SendMessageAnswerHeader(
            message_id=place.message_ids,
            queue_id=place.queue_id,
            queue_offset=place.queue_offset,
            region=options.region,
            trace_on=options.trace_on,
        )
        return encode_command(command.answer(int(code), answer), BATCH_ANSWER_HEADER_BYTES_MAX)

    def _encode_refused(self, link: Link, command: Command, error: ErucaError) -> bytes | None:
        if not isinstance(error, RequestRefused):
            error = RequestRefused(ResponseCode.SYSTEM_ERROR, str(error))
        if command.is_oneway:
            return encode_refusal(command, error, link)
        return encode_command(command.answer(error.code, self._refused, remark=error.remark))

    # -- from request to message -------------------------------------------------------------------------------------

    def build(self, link: Link, command: Command, header: AnySendHeader) -> Draft:
        """Make the message a request describes, for where it must go: its topic, or delay, half or dead letters."""
        config = self.check_topic(link, header)
        queue_id = self._choose_queue(header, config)
        topic = header.topic
        if topic.startswith(RETRY_PREFIX):
            topic, queue_id = self._redirect_dead(command, header, topic, queue_id)
        text = header.properties
        ordinary = hotsend.take_ordinary(text, self._cluster_property) if text and hotsend.compiled else None
        born_host, store_host = _host_of(link), self._parts.store_host
        message = Message(
            topic=topic,
            queue_id=queue_id,
            flag=header.flag,
            body=command.body,
            properties=ordinary or b"",
            sys_flag=set_host_bits(header.sys_flag, born_host, store_host),
            born_timestamp=header.born_timestamp,
            born_host=born_host,
            store_host=store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if ordinary is not None:
            return Draft(message, queue_id, True)
        raw = (text or "").encode()
        waits = does_wait(raw)
        if is_half(raw):
            if self._parts.options.reject_transactions:
                refuse(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._parts.options.host}] sending transaction message is forbidden",
                )
            if TIMER_MARK in raw and self._find_due_time(raw) is not None:
                refuse(ResponseCode.MESSAGE_ILLEGAL, "timer message illegal, a transaction cannot be delayed")
            message.properties = self._add_cluster(raw, drop_wait=False)
            map_half(message)
            self._parts.topics.create_internal(message.topic, 1)
            return Draft(message, queue_id, waits)
        level = self._delay_level(raw, message.sys_flag)
        message.properties = self._add_cluster(raw, drop_wait=level == 0)
        if level:
            self.delays.map(message, level)  # and not the timer, as RocketMQ 5 has it
        elif TIMER_MARK in raw:
            due_ms = self._find_due_time(raw)
            if due_ms is not None:
                map_timer(message, due_ms)
                self._parts.topics.create_internal(message.topic, 1)
        return Draft(message, queue_id, waits)

    def check_topic(self, link: Link, header: AnySendHeader) -> TopicConfig:
        """The settings of the topic of a request, made if the rules allow it; refuses as a Java broker does."""
        options = self._parts.options
        if options.accept_sends_from_ms and self._parts.clock.now_ms() < options.accept_sends_from_ms:
            refuse(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {options.accept_sends_from_ms}")
        refuse_unless_writable(self._parts)
        topic = header.topic
        config = self._parts.topics.get(topic)
        if not options.permission & WRITE and (config is None or config.order):
            refuse(ResponseCode.NO_PERMISSION, f"the broker[{options.host}] sending message is forbidden")
        if config is None or topic in FORBIDDEN_TO_SEND:
            config = self._find_or_make_topic(header)
        if not config.perm & WRITE and topic not in FORBIDDEN_TO_SEND and config.order:
            refuse(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        return config

    def _find_or_make_topic(self, header: AnySendHeader) -> TopicConfig:
        topic = header.topic
        refuse_topic_name(topic, self._store.options.topic_bytes_max)
        if topic in FORBIDDEN_TO_SEND:
            refuse(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        topics = self._parts.topics
        config = topics.create_for_send(topic, header.default_topic, header.default_topic_queue_nums)
        if config is None and topic.startswith(RETRY_PREFIX):
            config = topics.create_internal(topic, 1, READ | WRITE)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
        return config

    def _choose_queue(self, header: AnySendHeader, config: TopicConfig) -> int:
        queue_id = header.queue_id
        most = max(config.write_queue_nums, config.read_queue_nums)
        if queue_id >= most:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, topic {config.topic_name} has {most} queues",
            )
        if queue_id < 0:
            return random.randrange(max(1, config.write_queue_nums))
        return queue_id

    def _redirect_dead(self, command: Command, header: AnySendHeader, topic: str, queue_id: int) -> tuple[str, int]:
        """A retried message that was tried too often goes to the dead letters of its group."""
        group_name = topic[len(RETRY_PREFIX) :]
        group = self._parts.groups.get(group_name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name} {FAQ}"
            )
        most = group.retry_max_times
        if command.version >= _VERSION_HONOURS_MAX_TIMES and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) >= most:
            self._parts.topics.dead_letter_topic(group_name)
            return DLQ_PREFIX + group_name, 0
        return topic, queue_id

    def _find_due_time(self, raw: bytes) -> int | None:
        options = self._parts.options
        if not options.timer_enabled:
            return None
        return find_due_time(raw, self._parts.clock.now_ms(), options.timer_delay_seconds_max * 1000)

    def _delay_level(self, raw: bytes, sys_flag: int) -> int:
        if b"DELAY\x01" not in raw or sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
            return 0
        text = get_property(raw, b"DELAY")
        if text is None or not text.isdigit():
            return 0
        # Python refuses to read thousands of digits as a number; any level above the highest is taken for it anyway.
        return int(text) if len(text) <= _LEVEL_DIGITS_MAX else self.delays.highest

    def _add_cluster(self, raw: bytes, *, drop_wait: bool) -> bytes:
        """The properties with the cluster added, and without WAIT when nobody needs it any more."""
        if drop_wait:
            # Where Java clients have it in nearly every message.
            raw = raw[: -len(_WAIT)] if raw.endswith(_WAIT) else raw.replace(_WAIT_AMONG, b"\x02", 1)
        if b"CLUSTER\x01" in raw or (drop_wait and b"WAIT\x01" in raw):
            entries = [
                entry
                for entry in raw.split(b"\x02")
                if entry and not entry.startswith(b"CLUSTER\x01") and not (drop_wait and entry.startswith(b"WAIT\x01"))
            ]
            entries.append(self._cluster_property)
            return b"\x02".join(entries)
        if not raw:
            return self._cluster_property
        return raw + self._cluster_property if raw.endswith(b"\x02") else raw + b"\x02" + self._cluster_property

    # -- batches -----------------------------------------------------------------------------------------------------

    def _store_batch(self, link: Link, command: Command, header: AnySendHeader, marked: bool) -> Answer:
        config = self.check_topic(link, header)
        queue_id = self._choose_queue(header, config)
        raw = (header.properties or "").encode()
        if header.topic.startswith(RETRY_PREFIX) or header.sys_flag & TRANSACTION_MASK or self._delay_level(raw, 0):
            refuse(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry, delay or transactions")
        bytes_max = self._store.options.message_bytes_max
        body, sys_flag = unpack_batch(command.body, header.sys_flag, bytes_max)
        if len(body) > bytes_max:
            # As with Java, all of it counts: messages without a body would have no bound at all.
            raise self._refuse_unstored(MessageIllegal(f"the batch has {len(body)} bytes"))
        born_host, store_host = _host_of(link), self._parts.store_host
        facts = BatchFacts(
            set_host_bits(sys_flag, born_host, store_host),
            header.born_timestamp,
            born_host,
            store_host,
            header.reconsume_times or 0,
            self._add_cluster(raw, drop_wait=False),
        )
        waits = does_wait(raw)
        items: list[BatchItem] | None = None
        mark = None
        if marked:
            mark, items = self._choose_new(header.topic, queue_id, body)
            if items == []:
                return self._answer_dropped(link, command, header.topic, queue_id, raw)
        if items is None and TIMER_MARK not in raw:
            batch = self._append_encoded(header.topic, queue_id, body, facts)
            if batch is not None:
                if mark is not None:
                    self._parts.once.note(header.topic, queue_id, mark)
                self._parts.stats.on_put(header.topic, batch.messages, batch.size, queue_id)
                place = _Place(queue_id, batch.offset, batch.ids, batch.end)
                return self._answer(link, command, place, waits, header.topic)
        # The long way, for all that is unusual.
        items = decode_batch(body) if items is None else items
        timed = [each for each in (raw, *[item.properties for item in items]) if TIMER_MARK in each]
        if any(self._find_due_time(each) is not None for each in timed):
            refuse(ResponseCode.MESSAGE_ILLEGAL, "timer message illegal, messages of a batch cannot be delayed")
        messages = make_messages(header.topic, queue_id, items, facts)
        try:
            self._store.append_batch(messages)
        except StoreError as error:
            raise self._refuse_unstored(error) from error
        if mark is not None:
            self._parts.once.note(header.topic, queue_id, mark)
        self._parts.stats.on_put(header.topic, len(messages), sum([item.size for item in messages]), queue_id)
        ids = ",".join([encode_offset_id(item.store_host, item.position) for item in messages])
        # The answer has the first message's offset; the disk must have the last one.
        last = messages[-1]
        place = _Place(queue_id, messages[0].queue_offset, ids, last.position + last.size)
        return self._answer(link, command, place, waits, header.topic)

    def _append_encoded(self, topic: str, queue_id: int, data: bytes, facts: BatchFacts) -> StoredBatch | None:
        try:
            return self._store.append_encoded(topic, queue_id, data, facts)
        except StoreError as error:
            raise self._refuse_unstored(error) from error

    # -- messages that are stored once -------------------------------------------------------------------------------

    async def _store_when_ready(
        self, link: Link, command: Command, header_type: type[SendMessageHeader] | type[SendMessageV2Header]
    ) -> bytes | None:
        try:
            await self._parts.once.get_ready()
        except StoreError as error:
            return self._encode_refused(link, command, refuse_store_error(error, self._store))
        answer = self.handle(link, command, header_type)
        return answer if answer is None or isinstance(answer, bytes) else await answer

    def _store_once(self, link: Link, command: Command, header: AnySendHeader) -> Answer:
        """Store a message with a mark, unless it is here already."""
        refuse_unless_writable(self._parts)
        raw = (header.properties or "").encode()
        mark = _read_mark(raw)
        once = self._parts.once
        if header.queue_id < 0:
            refuse(ResponseCode.MESSAGE_ILLEGAL, "a message that is to be stored once needs a queue")
        if once.has(header.topic, header.queue_id, mark):
            once.note(header.topic, header.queue_id, mark)
            once.dropped += 1
            return self._answer_dropped(link, command, header.topic, header.queue_id, raw)
        draft = self.build(link, command, header)
        message = draft.message
        self._check_once_room(header.topic, header.queue_id, mark)
        self._append(message)
        once.note(header.topic, header.queue_id, mark)
        self._parts.stats.on_put(message.topic, 1, message.size, message.queue_id)
        message_id = encode_offset_id(message.store_host, message.position)
        place = _Place(draft.queue_id, message.queue_offset, message_id, message.position + message.size)
        return self._answer(link, command, place, draft.waits, header.topic, message.topic)

    def _choose_new(self, topic: str, queue_id: int, data: bytes) -> tuple[OnceMark, list[BatchItem] | None]:
        """The last mark of a batch, and those of its messages that are not here yet; None: all of them."""
        once = self._parts.once
        ends = find_ends(data)
        if ends is None:
            items = decode_batch(data)
            if not items:
                refuse(ResponseCode.MESSAGE_ILLEGAL, "a batch needs at least one message")
            ends = items[0], items[-1], len(items)
        first, last, count = _read_mark(ends[0].properties), _read_mark(ends[1].properties), ends[2]
        if first[:-1] != last[:-1] or last.sequence - first.sequence < count - 1:
            refuse(ResponseCode.MESSAGE_ILLEGAL, "the marks of a batch are not in order")
        if once.find_stored(topic, queue_id, last) < first.sequence and not once.find_islands(topic, queue_id, last):
            self._check_once_room(topic, queue_id, last)
            return last, None
        # Its answer was lost; and if some are not here, the broker died before the log had them.
        new = [item for item in decode_batch(data) if not once.has(topic, queue_id, _read_mark(item.properties))]
        once.dropped += count - len(new)
        if not new:
            once.note(topic, queue_id, last)
        return last, new

    def _check_once_room(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        try:
            self._parts.once.check_room(topic, queue_id, mark)
        except StoreError as error:
            raise self._refuse_unstored(error) from error

    def _answer_dropped(self, link: Link, command: Command, topic: str, queue_id: int, raw: bytes) -> Answer:
        # Nobody knows any more where they are; but disk and slaves must have them before their sender is told so.
        place = _Place(queue_id, -1, "", self._store.commitlog.tail)
        return self._answer(link, command, place, does_wait(raw), topic)


def _read_mark(properties: bytes) -> OnceMark:
    try:
        mark = read_mark(properties)
    except MessageIllegal as error:
        refuse(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if mark is None:
        refuse(ResponseCode.MESSAGE_ILLEGAL, f"messages of the group {ONCE_GROUP} need a mark")
    return mark


def _host_of(link: Link) -> bytes:
    """The peer's address as records hold it."""
    packed: bytes | None = link.notes.get(_HOST_NOTE)
    if packed is None:
        packed = link.notes[_HOST_NOTE] = pack_host(*link.peer_host)
    return packed
