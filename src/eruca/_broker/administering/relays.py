"""Requests relayed to a client through the broker: reset offsets, report status, consume a message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from eruca._broker.groups.clients import Clients, ConsumerGroup, Member
from eruca._broker.groups.offsets import Offsets
from eruca._broker.groups.progress import find_ends
from eruca._broker.options import LiveOptions
from eruca._broker.pulling.query import LEFT_OVER_REMARK
from eruca._broker.refusals import refuse
from eruca._broker.sending.stored import read_topic
from eruca._broker.topics import Topics
from eruca._ground.limits import JSON_BODY_BYTES_MAX
from eruca._ground.several import run_some
from eruca._net.answers import InOrder
from eruca._net.handlers import HandlerTable, Reply, Request, Result, decode_apart, encode_apart
from eruca._net.link import Link
from eruca._net.turns import Slices
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import (
    ConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
    encode_reset_offsets,
)
from eruca._wire.codes import (
    VERSION_3_0_7_SNAPSHOT,
    VERSION_3_1_8_SNAPSHOT,
    Language,
    RequestCode,
    ResponseCode,
)
from eruca._wire.frame import Command, encode_command, make_request
from eruca._wire.headers import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ResetOffsetHeader,
)
from eruca._wire.ids import decode_offset_id
from eruca._wire.signature import drop_signature
from eruca.errors import CallTimeout, NetError, RequestRefused, WireError

log = logging.getLogger(__name__)

# Timeouts: for a request relayed to a client, and for the questions to all members of a group about their offsets.
RELAY_S = 10.0
STATUS_S = 5.0
# How many members are asked for their offsets at a time.
_ASKED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class RelayHandlers:
    """Relays operator requests to clients."""

    _options: LiveOptions
    _store: MessageStore
    _topics: Topics
    _offsets: Offsets
    _clients: Clients
    # Whether a client may read a topic.
    _may_subscribe: Callable[[Link, str], bool]

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add_long(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.reset_offsets)
        table.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.ask_offsets)
        table.add_raw(RequestCode.GET_CONSUMER_RUNNING_INFO, self.ask_running_info)
        table.add_raw(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.have_consumed)

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def reset_offsets(self, request: Request) -> Reply:
        """Tell the members of a group to continue at the offsets of a given time; they commit them."""
        header: ResetOffsetHeader = request.header
        slices = Slices()
        offsets = ResetOffsetBody(offset_table=await self._find_offsets(header, slices))
        group = self._clients.consumer(header.group)
        if group is None or not group.members:
            refuse(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        _check_versions(group)
        notice = ResetOffsetHeader(topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=False)
        body = encode_reset_offsets(offsets, as_list=request.command.language is Language.CPP)
        frame = encode_command(make_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, notice, body, oneway=True))
        for link in list(group.members):
            link.send(frame)
            await slices.rest()
        log.info("telling group %s to reset its offsets in %s to %d", header.group, header.topic, header.timestamp)
        return Reply(body=offsets, remark=LEFT_OVER_REMARK)

    async def _find_offsets(self, header: ResetOffsetHeader, slices: Slices) -> dict[MessageQueue, int]:
        topic = self._topics.get(header.topic)
        if topic is None:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        committed = self._offsets.queues(header.group, header.topic)
        found: dict[MessageQueue, int] = {}
        for queue_id in range(topic.write_queue_nums):
            offset = committed.get(queue_id, -1)
            if offset < 0:
                refuse(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            if header.timestamp == -1:
                wanted = find_ends(self._store, header.topic, queue_id)[1]
            else:
                wanted = self._store.reader.find_offset(header.topic, queue_id, header.timestamp)
            # Without force, a group can only move backwards.
            queue = MessageQueue(self._options.now.name, queue_id, header.topic)
            found[queue] = wanted if header.is_force else min(wanted, offset)
            await slices.rest()
        return found

    def ask_offsets(self, request: Request) -> Result:
        """Ask one or all members of a group for their offsets; members that do not respond are left out."""
        return InOrder(self._ask_offsets(request))

    async def _ask_offsets(self, request: Request) -> Reply:
        header: ConsumerStatusHeader = request.header
        group = self._clients.consumer(header.group)
        if group is None or not group.members:
            refuse(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        _check_versions(group)
        wanted = (header.client_address or "").strip()
        members = [member for member in group.members.values() if wanted in ("", member.client_id)]
        survey = _Survey(header)
        await run_some([partial(survey.ask, member) for member in members], _ASKED_AT_ONCE)
        return Reply(body=await encode_apart(request, survey.collect()), remark=LEFT_OVER_REMARK)

    # -- passing on ---------------------------------------------------------------------------------------------------

    async def ask_running_info(self, link: Link, command: Command) -> bytes | None:
        """Ask a consumer for its running info."""
        header = command.decode_header(ConsumerRunningInfoHeader)
        member = self._find_member(header.consumer_group, header.client_id)
        return await _relay(command, header.consumer_group, member, drop_signature(command.ext_dict()), b"")

    async def have_consumed(self, link: Link, command: Command) -> bytes | None:
        """Tell a client to consume one of this broker's messages now."""
        header = command.decode_header(ConsumeDirectlyHeader)
        group_name = header.consumer_group
        topic, record = self._find_record(header.message_id)
        member = self._find_member(group_name, header.client_id or "")
        if not self._may_subscribe(member.link, topic):
            # Any account that may consume as the group can be a member, and clients choose their ids.
            who = f"<{group_name}> <{member.client_id}>"
            refuse(ResponseCode.NO_PERMISSION, f"the account of consumer {who} may not subscribe to topic {topic}")
        ext = {**drop_signature(command.ext_dict()), "brokerName": self._options.now.name}
        return await _relay(command, group_name, member, ext, record)

    def _find_record(self, message_id: str | None) -> tuple[str, bytes]:
        """Find topic and record of an offset id. The id may name another broker, so the position in it decides."""
        position = decode_offset_id(message_id or "").position
        topic, record = read_topic(self._store, position), self._store.reader.view_message(position)
        if topic is None or record is None:
            refuse(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}")
        return topic, bytes(record)

    def _find_member(self, group_name: str, client_id: str) -> Member:
        group = self._clients.consumer(group_name)
        member = None if group is None else group.find(client_id)
        if member is None:
            refuse(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")
        if member.version < VERSION_3_1_8_SNAPSHOT:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        return member


async def _relay(command: Command, group_name: str, member: Member, ext: dict[str, str], body: bytes) -> bytes | None:
    request, client_id = make_request(command.code, body=body), member.client_id
    request.ext = ext
    try:
        answer = await member.link.call(request, RELAY_S)
    except CallTimeout as error:
        raise RequestRefused(
            ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group_name}> <{client_id}> Timeout: {error}"
        ) from error
    except NetError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group_name}> <{client_id}> Exception: {error}"
        ) from error
    # The client's response, but with the opaque and the header format of the original request.
    reply = command.answer(answer.code, None, answer.body, remark=answer.remark)
    reply.ext = answer.ext_dict() if answer.has_ext else None
    return encode_command(reply)


class _Survey:
    """The offsets that the members of a group hold."""

    def __init__(self, header: ConsumerStatusHeader) -> None:
        self._question = ConsumerStatusHeader(topic=header.topic, group=header.group)
        self._until = asyncio.get_running_loop().time() + STATUS_S
        self._found = ConsumerStatusBody()
        self._size = 0

    async def ask(self, member: Member) -> None:
        """Ask a member, if there is time and room for its answer."""
        left_s = self._until - asyncio.get_running_loop().time()
        if left_s <= 0 or self._size > JSON_BODY_BYTES_MAX:
            return
        command = make_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._question)
        try:
            answer = await member.link.call(command, left_s)
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                return
            body = await decode_apart(ConsumerStatusBody, answer.body)
            self._size += len(answer.body)
            if self._size <= JSON_BODY_BYTES_MAX:
                self._found.consumer_table[member.client_id] = body.message_queue_table
        except (NetError, WireError, RequestRefused) as error:
            log.warning("%s at %s did not return its offsets: %s", member.client_id, member.link.peer, error)

    def collect(self) -> ConsumerStatusBody:
        """Return what was found. Raises RequestRefused if it is too much."""
        if self._size > JSON_BODY_BYTES_MAX:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"the offsets of the members have more than {JSON_BODY_BYTES_MAX} bytes: ask for one member",
            )
        return self._found


def _check_versions(group: ConsumerGroup) -> None:
    for member in group.members.values():
        if member.version < VERSION_3_0_7_SNAPSHOT:
            refuse(ResponseCode.SYSTEM_ERROR, f"the client does not support this feature. version={member.version}")
