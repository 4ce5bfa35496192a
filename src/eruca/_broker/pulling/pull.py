"""Pulling: returns slices of the mapped log for a queue, or holds the request until there are some."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Final

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.clients import Clients
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.offsets import Offsets
from eruca._broker.options import BrokerOptions, BrokerRole, LiveOptions
from eruca._broker.pulling.hold import Hold, Holds
from eruca._broker.pulling.logpieces import WHOLE_BYTES_MAX, LogPieces, extend_frame
from eruca._broker.pulling.movedevents import OffsetMovedEvents
from eruca._broker.pulling.subscriptions import TAG, PullFilter, PullFilters
from eruca._broker.refusals import FAQ, refuse
from eruca._broker.replication.readlimit import ReadLimit
from eruca._broker.standing import Standing
from eruca._broker.topics import Topics
from eruca._core.replication.numbering import was_promoted
from eruca._filter.tags import ExpressionError
from eruca._ground.clock import Clock
from eruca._ground.limits import HOLD_BYTES, PULL_BYTES_MAX, PULL_COUNT_MAX
from eruca._net.answers import InOrder, LongAnswer, encode_refusal
from eruca._net.handlers import HandlerTable
from eruca._net.link import Answer, Link
from eruca._store.messagestore import MessageStore
from eruca._store.reading.slices import ReadBounds, ReadResult, ReadStatus
from eruca._wire.bodies import GroupConfig, MessageModel
from eruca._wire.codes import RequestCode, ResponseCode, SerializeType
from eruca._wire.command import FRAME_PREFIX
from eruca._wire.frame import Command, encode_command
from eruca._wire.headers import EmptyHeader, PullMessageAnswerHeader, PullMessageHeader
from eruca._wire.names import MASTER_ID, READ
from eruca._wire.sysflag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from eruca.errors import RequestRefused, TableFull

_TEMPLATE = (
    '{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","maxOffset":"%d","minOffset":"%d"%s},'
    '"flag":1,"language":"PYTHON","opaque":%d,"remark":"%s","serializeTypeCurrentRPC":"JSON","version":407}'
)

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}

# Responses that send a reader to another offset, or tell it to retry.
_CORRECTIONS = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED})
# The time to copy a larger response is deducted from the time slice.
_QUICK_BYTES_MAX = 128 * 1024
# A slave has this much less memory for readers, in percent.
_SLAVE_RATIO_LESS = 10


# Looking up an enum member takes longer than comparing it.
_SLAVE: Final = BrokerRole.SLAVE
_JSON: Final = SerializeType.JSON
_BROADCASTING: Final = MessageModel.BROADCASTING
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_OFFSET_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED


class _Uncompiled(Exception):
    """A filter must be compiled first."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


@dataclass(eq=False)
class PullHandlers:
    """Handles pulls."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _offsets: Offsets
    _clients: Clients
    _stats: Stats
    _reads: ReadLimit

    def __post_init__(self) -> None:
        # Cached, because every pull reads; the attribute lookup takes longer than some checks.
        self._read = self._store.reader.read
        self._filters = PullFilters()
        self._memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.holds = Holds(self._options, self._resume, self._max_offset)
        self.pieces = LogPieces(self._store)
        self._moved = OffsetMovedEvents(self._options, self._standing, self._clock, self._store, self._stats)

    def register(self, table: HandlerTable) -> None:
        """Register the handler."""
        table.add_raw(RequestCode.PULL_MESSAGE, self.handle)

    @property
    def filters(self) -> PullFilters:
        """The compiled expressions, shared with other code that checks expressions."""
        return self._filters

    def handle(self, link: Link, command: Command) -> Answer:
        """Answer a pull, or hold it."""
        try:
            header = command.decode_header(PullMessageHeader)
            return self._pull(link, command, header, may_hold=True, first=True)
        except _Uncompiled as error:
            return InOrder(self._compile_and_pull(link, command, header, error.kind, error.text))
        except RequestRefused as error:
            return encode_command(command.answer(error.code, EmptyHeader(), remark=error.remark))

    async def _compile_and_pull(
        self, link: Link, command: Command, header: PullMessageHeader, kind: str, text: str
    ) -> bytes | LongAnswer | None:
        """Answer the first pull with an SQL92 expression, after compiling it."""
        try:
            try:
                await self._filters.prepare(kind, text)
            except ExpressionError as error:
                raise refuse_expression(error) from None
            if not link.is_open:
                return None
            return self._pull(link, command, header, may_hold=True, first=True)
        except RequestRefused as error:
            return encode_command(command.answer(error.code, EmptyHeader(), remark=error.remark))

    def _resume(self, hold: Hold, may_hold: bool) -> None:
        """Run a held pull again."""
        if not hold.link.is_open:
            return
        assert isinstance(hold.header, PullMessageHeader)
        try:
            answer = self._pull(
                hold.link, hold.command, hold.header, may_hold=may_hold, first=False, deadline=hold.deadline
            )
        except Exception as error:
            answer = encode_refusal(hold.command, error, hold.link.peer)
        if answer is not None:
            hold.link.send(answer)

    def _max_offset(self, topic: str, queue_id: int) -> int:
        return self._reads.find_max(self._store.queues.get(topic, queue_id))

    def _pull(
        self,
        link: Link,
        command: Command,
        header: PullMessageHeader,
        *,
        may_hold: bool,
        first: bool,
        deadline: float | None = None,
    ) -> bytes | LongAnswer | None:
        options, is_slave = self._options.now, self._standing.role is _SLAVE
        group = self._check_group(header, options)
        self._check_topic(link, header)
        pull_filter = self._find_filter(header, group, first)
        if pull_filter.accept is not None:
            link.looks_at_clock = True
        flags = header.sys_flag
        result = self._read(
            header.topic,
            header.queue_id,
            header.queue_offset,
            _choose_bounds(header, options),
            pull_filter.accept,
            self._reads.find_position() if self._reads.is_bounding else None,
        )
        if first and _QUICK_BYTES_MAX < result.size <= WHOLE_BYTES_MAX:
            link.need_time()
        if first and flags & PULL_COMMIT_OFFSET and not is_slave:
            try:  # noqa: SIM105 - a context manager takes longer than the commit
                self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
            except (RequestRefused, TableFull):
                pass  # an offset that cannot be stored does not fail the pull; the table logs it
        code = self._code_of(result, header.queue_offset)
        if is_slave and not options.offset_check_in_slave and code in _CORRECTIONS:
            # The master may have messages that a slave does not have yet or has already deleted.
            result.next_offset = header.queue_offset
            if code is _OFFSET_MOVED:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if code is _NOT_FOUND and flags & PULL_SUSPEND and may_hold:
            weight = _weigh(header)
            if self.holds.has_room(link, weight):
                # Counted as a miss, as in Java: once now, and once when it is answered.
                self._stats.on_miss()
                self._park(link, command, header, pull_filter, deadline, weight)
                return None
        if code is _OFFSET_MOVED and self._standing.writable:
            self._moved.tell(header, result)
        if result.slices:
            self._stats.on_get(
                header.consumer_group,
                header.topic,
                result.count,
                result.size,
                header.queue_id,
                next_offset=result.next_offset,
            )
        else:
            self._stats.on_miss()
        suggested = self._suggest(header, group, result) if options.slave_read else MASTER_ID
        head = self._encode_head(command, code, result, suggested, self._find_epoch())
        return self.pieces.answer(head, result.slices, result.size)

    def _find_epoch(self) -> int | None:
        """Return the epoch of the log, sent to readers where masters change; None where they never did."""
        epochs = self._store.lineage.epochs
        if epochs and (was_promoted(epochs[-1].epoch) or self._options.now.failover):
            return epochs[-1].epoch
        return None

    def _suggest(self, header: PullMessageHeader, group: GroupConfig, result: ReadResult) -> int:
        """Suggest where the group should pull next: readers of data that is hardly in memory may use a slave."""
        store, options = self._store, self._options.now
        queue = store.queues.get(header.topic, header.queue_id)
        entry = None if queue is None or not result.count else queue.entry(result.next_offset - 1)
        if entry is None:
            return group.broker_id
        ratio = max(0, options.memory_ratio_max - (_SLAVE_RATIO_LESS if self._standing.is_slave else 0))
        is_slow = store.log.readable_end - entry.position > self._memory_bytes * ratio // 100
        return group.which_broker_when_consume_slowly if is_slow else group.broker_id

    @staticmethod
    def _code_of(result: ReadResult, offset: int) -> int:
        code = _CODES.get(result.status)
        if code is None:  # there is no such queue, or nothing in it
            return _NOT_FOUND if offset == 0 else _OFFSET_MOVED
        return code

    @staticmethod
    def _encode_head(
        command: Command, code: int, result: ReadResult, suggested: int, epoch: int | None = None
    ) -> bytes:
        """Encode all of a response except the messages."""
        if command.serialization is _JSON:
            head = (
                _TEMPLATE
                % (
                    code,
                    suggested,
                    result.next_offset,
                    result.max_offset,
                    result.min_offset,
                    "" if epoch is None else f',"erucaEpoch":"{epoch}"',
                    command.opaque,
                    result.status,
                )
            ).encode()
            return FRAME_PREFIX.pack(4 + len(head) + result.size, len(head)) + head
        header = PullMessageAnswerHeader(
            suggest_which_broker_id=suggested,
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            eruca_epoch=epoch,
        )
        return extend_frame(encode_command(command.answer(int(code), header, remark=result.status)), result.size)

    # -- checks ------------------------------------------------------------------------------------------------------

    def _check_group(self, header: PullMessageHeader, options: BrokerOptions) -> GroupConfig:
        if not options.permission & READ:
            refuse(ResponseCode.NO_PERMISSION, f"the broker[{options.host}] pulling message is forbidden")
        group = self._groups.get(header.consumer_group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            refuse(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group}",
            )
        return group

    def _check_topic(self, link: Link, header: PullMessageHeader) -> None:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            )
        if not topic.perm & READ:
            refuse(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{link.peer}]",
            )

    def _find_filter(self, header: PullMessageHeader, group: GroupConfig, first: bool) -> PullFilter:
        """Return the filter of a pull: from the request, or from the heartbeat of its group.

        Raises _Uncompiled, on the first attempt only, if compiling would take long.
        """
        if header.sys_flag & PULL_SUBSCRIPTION:
            kind, text = header.expression_type, header.subscription
        else:
            online = self._clients.consumer(header.consumer_group)
            if online is None:
                refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
            if online.message_model is _BROADCASTING and not group.consume_broadcast_enable:
                refuse(
                    ResponseCode.NO_PERMISSION,
                    f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                )
            known = online.subscriptions.get(header.topic)
            if known is None:
                raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
            if known.sub_version < header.subscription_version:
                refuse(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
            kind, text = known.expression_type, known.sub_string
        if kind and kind != TAG:
            if not self._options.now.property_filter:
                refuse(ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}")
            if first and text is not None and self._filters.takes_long(kind, text):
                raise _Uncompiled(kind, text)
        try:
            return self._filters.get(kind, text)
        except ExpressionError as error:
            raise refuse_expression(error) from None

    # -- holding -----------------------------------------------------------------------------------------------------

    def _park(
        self,
        link: Link,
        command: Command,
        header: PullMessageHeader,
        pull_filter: PullFilter,
        deadline: float | None,
        weight: int,
    ) -> None:
        options = self._options.now
        if deadline is None:
            wait_ms = header.suspend_timeout_ms if options.long_polling else options.short_polling_ms
            deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        # The typed header has everything that is needed of the request; the rest may be a megabyte.
        command.ext, command.remark, command.body = None, None, b""
        self.holds.park(
            Hold(
                link,
                command,
                header,
                header.topic,
                header.queue_id,
                header.queue_offset,
                deadline,
                pull_filter.wants,
                weight,
            )
        )


def _choose_bounds(header: PullMessageHeader, options: BrokerOptions) -> ReadBounds:
    """Return how much a response may contain: as configured, or as requested by a reader of large batches."""
    count_max, bytes_max = PULL_COUNT_MAX, options.transfer_bytes_memory
    if header.max_message_bytes is not None:
        bytes_max = min(max(1, header.max_message_bytes), PULL_BYTES_MAX)
    elif options.transfer_count_memory < count_max:
        count_max = options.transfer_count_memory
    # Comparing takes less time than calling `min`, which every pull would do.
    count = header.max_message_nums
    return ReadBounds(count_max if count > count_max else count if count > 1 else 1, bytes_max, joined=True)


def refuse_expression(error: ExpressionError) -> RequestRefused:
    """Return the error for a request with an invalid expression."""
    return RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}")


def _weigh(header: PullMessageHeader) -> int:
    """Estimate the memory of a held pull in bytes; the client chooses its texts."""
    subscription, kind, broker = header.subscription or "", header.expression_type or "", header.broker_name or ""
    return HOLD_BYTES + len(header.consumer_group) + len(subscription) + len(kind) + len(broker)
