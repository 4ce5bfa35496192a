"""Tracks the filter classes uploaded to filter servers, so that each is uploaded once and not with every pull."""

from __future__ import annotations

import base64

from eruca._client.session.calls import Calls, explain_refusal
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import RegisterFilterClassHeader
from eruca._wire.record import body_crc


class Uploads:
    """The classes that filter servers are known to have."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        # By server, group and topic.
        self._there: dict[tuple[str, str, str], tuple[str, bytes]] = {}

    async def ensure(self, server: str, group: str, topic: str, name: str, module: bytes) -> None:
        """Upload the class of a group for a topic unless the filter server has it already. Raises ErucaError."""
        key = server, group, topic
        if self._there.get(key) == (name, module):
            return
        body = base64.b64encode(module)
        header = RegisterFilterClassHeader(consumer_group=group, topic=topic, class_name=name, class_crc=body_crc(body))
        command = make_request(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, header, body)
        answer = await self._calls.call(server, command)
        if answer.code != ResponseCode.SUCCESS:
            raise explain_refusal(answer, f"filter server {server}")
        self._there[key] = name, module

    def forget(self, *, topic: str = "", server: str = "") -> None:
        """Forget the uploads of a topic or to a server, so that they are uploaded again when needed."""
        for key in [key for key in self._there if server == key[0] or topic == key[2]]:
            del self._there[key]
