"""Pulls: forwarded to the broker, filtered, and returned to the client."""

from __future__ import annotations

from collections.abc import Awaitable

from eruca._filterserver.classes import FilterClasses, GroupFilter
from eruca._filterserver.options import FilterServerOptions
from eruca._net.caller import Caller
from eruca._net.handlers import HandlerTable
from eruca._net.link import Link
from eruca._net.meters import count_refused, show
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, encode_command, make_request
from eruca._wire.headers import PullMessageAnswerHeader, PullMessageHeader
from eruca._wire.record import decode_records
from eruca._wire.sysflag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from eruca.errors import RequestRefused

_HOLD_MS_MAX = 60_000
_EMPTY = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED})


class FilteredPulls:
    """Answers pulls with the part of the broker's response that passes a filter class."""

    def __init__(self, options: FilterServerOptions, caller: Caller, classes: FilterClasses) -> None:
        self._options = options
        self._caller = caller
        self._classes = classes
        # Bytes of messages that are being filtered or wait for it.
        self._waiting = 0
        show(
            "filter_waiting_bytes",
            "Bytes of messages that are being filtered or wait for it.",
            self,
            lambda it: it._waiting,
        )

    def register(self, table: HandlerTable) -> None:
        """Register the pull handler."""
        table.add_raw(RequestCode.PULL_MESSAGE, self.handle)

    def handle(self, link: Link, command: Command) -> Awaitable[bytes | None]:
        """Answer a pull once the broker has responded."""
        return self._pull(command)

    async def _pull(self, command: Command) -> bytes:
        header = command.decode_header(PullMessageHeader)
        chosen = self._classes.find(header.consumer_group, header.topic)
        answer = await self._ask_broker(header)
        if answer.code in _EMPTY:
            # Nothing found, even after the broker held the pull: the header contains where to continue.
            return encode_command(
                command.answer(answer.code, answer.decode_header(PullMessageAnswerHeader), remark=answer.remark)
            )
        if answer.code != ResponseCode.SUCCESS:
            return encode_command(command.answer(answer.code, remark=answer.remark))
        size = len(answer.body)
        self._check_room(size)
        self._waiting += size
        try:
            return await self._filter(command, chosen, answer)
        finally:
            self._waiting -= size

    def _check_room(self, size: int) -> None:
        """Refuse a pull whose messages would wait beside too many others."""
        most = self._options.waiting_bytes_max
        if self._waiting + size > most:
            count_refused("filterMaxWaitingBytes")
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"messages of {self._waiting} bytes are to be filtered (filterMaxWaitingBytes={most}): pull again",
            )

    async def _filter(self, command: Command, chosen: GroupFilter, answer: Command) -> bytes:
        """Answer a pull with the messages of the broker's response that pass."""
        where = answer.decode_header(PullMessageAnswerHeader)
        body = bytes(answer.body)
        messages = decode_records(body, check_crc=False)
        verdict = await self._classes.filter(chosen, messages)
        if verdict.done < len(messages):
            where.next_begin_offset = messages[verdict.done].queue_offset
        if not verdict.wanted:
            # The client continues after the messages that did not match, without a pause.
            return encode_command(
                command.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, where, remark="NO_MATCHED_MESSAGE")
            )
        kept = body
        if len(verdict.wanted) < len(messages):
            ends = [0]
            for message in messages:
                ends.append(ends[-1] + message.size)
            kept = b"".join([body[ends[number] : ends[number + 1]] for number in verdict.wanted])
        return encode_command(command.answer(ResponseCode.SUCCESS, where, kept, remark="FOUND"))

    async def _ask_broker(self, asked: PullMessageHeader) -> Command:
        hold_ms = max(0, min(asked.suspend_timeout_ms, _HOLD_MS_MAX)) if asked.sys_flag & PULL_SUSPEND else 0
        header = PullMessageHeader(
            consumer_group=asked.consumer_group,
            topic=asked.topic,
            queue_id=asked.queue_id,
            queue_offset=asked.queue_offset,
            max_message_nums=asked.max_message_nums,
            # Everything, whatever the group's heartbeat contains: the name of the class is not a tag.
            sys_flag=asked.sys_flag & (PULL_COMMIT_OFFSET | PULL_SUSPEND) | PULL_SUBSCRIPTION,
            commit_offset=asked.commit_offset,
            suspend_timeout_ms=hold_ms,
            subscription="*",
            subscription_version=asked.subscription_version,
            expression_type="TAG",
        )
        command = make_request(RequestCode.PULL_MESSAGE, header)
        return await self._caller.call(self._options.broker, command, hold_ms + self._options.call_timeout_ms)
