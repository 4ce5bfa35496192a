"""The other side of a broker in tests: sends requests, and answers those of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eruca._broker.app import Broker
from eruca._net.caller import Caller
from eruca._net.link import Handler
from eruca._wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from eruca._wire.catalog import decode_answer, encode_request_body
from eruca._wire.codes import VERSION_ANNOUNCED, Language, RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import CreateTopicHeader, Header, SendMessageV2Header
from eruca._wire.properties import encode_properties
from eruca._wire.signature import Credentials
from tests.interop.javapeer import find_broker_port
from tests.patience import PATIENCE_S

TIMEOUT_MS = PATIENCE_S * 1000


def find_port() -> int:
    """Find a free port whose neighbours are free: two below is the fast port, one above the port for slaves."""
    return find_broker_port()


class Answer:
    """A response, decoded by the catalog."""

    def __init__(self, request_code: int, command: Command) -> None:
        self.command = command
        self.code = command.code
        self.remark = command.remark
        self.ext = command.ext_dict() if command.has_ext else None
        self.header: Any
        self.body: Any
        self.header, self.body = decode_answer(request_code, command)


class Peer:
    """One client with one connection."""

    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler] | None = None,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        self._caller = Caller(handlers, credentials=credentials)
        self._address = broker.standing.address
        self.broker = broker

    async def ask(
        self,
        code: int,
        header: Header | None = None,
        body: Any = None,
        *,
        language: Language = Language.JAVA,
        version: int = VERSION_ANNOUNCED,
    ) -> Answer:
        """Send a request and return its response, whatever its code."""
        data = body if isinstance(body, bytes) else encode_request_body(code, body, header, version=version)
        command = make_request(code, header, data, language=language, version=version)
        return Answer(code, await self._caller.call(self._address, command, TIMEOUT_MS))

    async def expect(self, code: int, header: Header | None = None, body: Any = None, **how: Any) -> Answer:
        """Send a request that must succeed."""
        answer = await self.ask(code, header, body, **how)
        assert answer.code == ResponseCode.SUCCESS, f"{code}: {answer.code} {answer.remark}"
        return answer

    async def refused(self, code: int, header: Header | None = None, body: Any = None, **how: Any) -> tuple[int, str]:
        """Send a request that must be refused; return code and remark."""
        answer = await self.ask(code, header, body, **how)
        assert answer.code != ResponseCode.SUCCESS, f"{code} succeeded"
        return answer.code, answer.remark or ""

    async def send(self, topic: str, queue_id: int = 0, body: bytes = b"hello", **properties: str) -> dict[str, str]:
        """Send a message; return the ext fields of the response."""
        header = SendMessageV2Header(
            producer_group="producers",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=encode_properties(properties).decode(),
        )
        answer = await self.expect(RequestCode.SEND_MESSAGE_V2, header, body)
        assert answer.ext is not None
        return answer.ext

    async def make_topic(self, topic: str, queues: int = 4, perm: int = 6) -> Answer:
        """Make a topic."""
        header = CreateTopicHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            order=False,
        )
        return await self.expect(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def join(
        self, group: str, client_id: str, *topics: str, expression: str = "*", version: int = VERSION_ANNOUNCED
    ) -> None:
        """Become a member of a consumer group."""
        data = ConsumerData(
            group_name=group,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            subscription_data_set=[SubscriptionData(topic=topic, sub_string=expression) for topic in topics],
        )
        body = HeartbeatData(client_id=client_id, consumer_data_set=[data])
        await self.expect(RequestCode.HEART_BEAT, None, body, version=version)

    async def produce(self, group: str, client_id: str) -> None:
        """Become a member of a producer group."""
        body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group)])
        await self.expect(RequestCode.HEART_BEAT, None, body)

    async def close(self) -> None:
        """Close the connection."""
        await self._caller.close()
