"""Replies to request messages: delivered to the waiting client, and stored as messages of their topic."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.clients import Clients
from eruca._broker.options import LiveOptions
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.sending.drafting import Drafting
from eruca._broker.standing import Standing
from eruca._ground.clock import Clock
from eruca._net.guards import Reporter
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._net.link import Link
from eruca._store.messagestore import MessageStore
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import AnySendHeader, PushReplyHeader, SendMessageAnswerHeader, SendRefusedHeader
from eruca._wire.host import unpack_host
from eruca._wire.ids import encode_offset_id
from eruca._wire.properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT, encode_properties, parse_properties
from eruca._wire.record import Record
from eruca.errors import ErucaError, InvalidName, NetError, RequestRefused, StoreError, WireError

log = logging.getLogger(__name__)

# How long the client may take to confirm the reply.
_PUSH_SECONDS = 10.0
# The message id of the response if the reply was delivered but not stored: the Java client needs one.
_NO_ID = "0"


@dataclass(frozen=True, slots=True, eq=False)
class ReplyHandlers:
    """Handles 324 and 325."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    _clients: Clients
    _stats: Stats
    _acknowledgement: Acknowledgement
    _drafting: Drafting
    _reporter: Reporter = field(default_factory=partial(Reporter, log))

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.SEND_REPLY_MESSAGE, self.take_reply)
        table.add(RequestCode.SEND_REPLY_MESSAGE_V2, self.take_reply)

    async def take_reply(self, request: Request) -> Reply:
        """Deliver a reply to the requester; the response tells whether that succeeded."""
        options, header = self._options.now, request.header
        try:
            draft = self._drafting.build(request.link, request.command, header)
        except RequestRefused as error:
            return self._refuse(error.code, error.remark)
        except (WireError, InvalidName) as error:
            return self._refuse(ResponseCode.SYSTEM_ERROR, str(error))
        try:
            await self._push(request.link, request.command, header)
            code, remark = int(ResponseCode.SUCCESS), None
        except ErucaError as error:
            self._reporter.report_peer(
                request.link.peer_host[0], f"a reply of {request.link.peer} was not delivered: {error}"
            )
            code, remark = int(ResponseCode.SYSTEM_ERROR), str(error)
        message = draft.message
        kept = self._keep(message)
        if code != ResponseCode.SUCCESS and not kept:
            return self._refuse(code, remark)
        if kept and code == ResponseCode.SUCCESS and self._acknowledgement.needs_wait(draft.waits):
            # As for any message: success means that it is as safe on disk and slaves as the broker's mode requires.
            code = int(await self._acknowledgement.wait(message.position + message.size, waits=draft.waits))
        answer = SendMessageAnswerHeader(
            message_id=encode_offset_id(message.store_host, message.position) if kept else _NO_ID,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            region=options.region,
            trace_on=options.trace_on,
        )
        return Reply(answer, code=code, remark=remark)

    def _refuse(self, code: int, remark: str | None) -> Reply:
        options = self._options.now
        return Reply(SendRefusedHeader(region=options.region, trace_on=options.trace_on), code=code, remark=remark)

    # -- delivering --------------------------------------------------------------------------------------------------

    async def _push(self, link: Link, command: Command, header: AnySendHeader) -> None:
        """Call the requesting client, on its producer's connection. Raises ErucaError if that fails."""
        properties = parse_properties(header.properties or "")
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            raise NetError(f"reply message properties[{REPLY_TO_CLIENT}] is null")
        requester = self._clients.find_producer(client_id)
        if requester is None:
            raise NetError(f"push reply message fail, channel of <{client_id}> not found.")
        now_ms = self._clock.now_ms()
        properties[PUSH_REPLY_TIME] = str(now_ms)
        store_ip, store_port = unpack_host(self._standing.store_host)
        push = PushReplyHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=link.peer,
            store_host=f"{store_ip}:{store_port}",
            store_timestamp=now_ms,
        )
        request = make_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, command.body)
        try:
            answer = await requester.link.call(request, _PUSH_SECONDS)
        except NetError as error:
            raise NetError(f"push reply message to {client_id} fail. {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            raise NetError(f"push reply message to {client_id} fail. {answer.remark or f'code {answer.code}'}")

    # -- storing -----------------------------------------------------------------------------------------------------

    def _keep(self, message: Record) -> bool:
        """Store the reply, if configured; a failure is only logged, because the client already has the reply."""
        if not self._options.now.store_replies:
            return False
        try:
            self._store.append(message)
        except StoreError as error:
            log.warning("a reply of topic %s was not stored: %s", message.topic, error)
            return False
        self._stats.on_put(message.topic, 1, message.size, message.queue_id)
        return True
