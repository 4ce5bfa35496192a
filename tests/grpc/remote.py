"""Topics and groups on a running system, made by its remoting port.

The frames are written here and not by Eruca's own client, so that both systems get the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.patience import PATIENCE_S

UPDATE_TOPIC, GET_MAX_OFFSET, GET_ROUTE, UPDATE_GROUP = 17, 30, 105, 200
SUCCESS = 0
# Longer than any back-off here; all cells of a run share one machine.
ARRIVE_SECONDS_MAX = 150
HEADER_LENGTH_MASK = 0xFF_FFFF


class RemoteError(Exception):
    """A request was refused."""


_Answer = TypeVar("_Answer")
_PAUSE = threading.Event()
_PAUSE_S = 0.1


def poll(ask: Callable[[], _Answer], is_wanted: Callable[[_Answer], bool], what: str) -> _Answer:
    """Ask repeatedly until the answer is the wanted one; returns it."""
    deadline = time.monotonic() + ARRIVE_SECONDS_MAX
    while not is_wanted(answer := ask()):
        assert time.monotonic() < deadline, f"not after {ARRIVE_SECONDS_MAX} s: {what}; the last answer was {answer!r}"
        _PAUSE.wait(_PAUSE_S)
    return answer


@dataclass(frozen=True)
class Account:
    """A name and a secret."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class Remote:
    """A broker and its name server, and the account that requests are signed with."""

    address: str
    names: str
    account: Account | None = None

    def ask(self, code: int, fields: Mapping[str, Any], body: bytes = b"", address: str = "") -> dict[str, Any]:
        """Send one request, to the broker unless told otherwise; returns the fields of the answer."""
        texts = {key: str(value) for key, value in fields.items()}
        if self.account is not None:
            texts["AccessKey"] = self.account.access_key
            signed = "".join(texts[key] for key in sorted(texts)).encode() + body
            digest = hmac.new(self.account.secret_key.encode(), signed, hashlib.sha1).digest()
            texts["Signature"] = base64.b64encode(digest).decode()
        command = {"code": code, "language": "JAVA", "version": 461, "opaque": 1, "flag": 0, "extFields": texts}
        header = json.dumps(command).encode()
        host, _, port = (address or self.address).rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
            with connection.makefile("rb") as stream:
                (length,) = struct.unpack(">i", stream.read(4))
                data = stream.read(length)
        (marked,) = struct.unpack(">i", data[:4])
        answer = json.loads(data[4 : 4 + (marked & HEADER_LENGTH_MASK)])
        if answer["code"] != SUCCESS:
            raise RemoteError(f"code {code}: {answer['code']} {answer.get('remark')}")
        return dict(answer.get("extFields") or {})

    def make_topic(self, name: str, kind: str, queues: int) -> None:
        """Make a topic for one type of messages: NORMAL, FIFO, DELAY, TRANSACTION or MIXED.

        It is there when the name server knows it, which may be later than the answer of the broker.
        """
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
            "attributes": f"+message.type={kind}",
        }
        self.ask(UPDATE_TOPIC, fields)
        poll(lambda: self._has_route(name), bool, f"the name server knows {name}")

    def _has_route(self, topic: str) -> bool:
        try:
            self.ask(GET_ROUTE, {"topic": topic}, address=self.names)
        except RemoteError:
            return False
        return True

    def make_group(self, name: str, *, fifo: bool = False, retries: int = 16) -> None:
        """Make a group; its messages are tried once and then `retries` times more."""
        described = {
            "groupName": name,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "consumeMessageOrderly": fifo,
            "retryQueueNums": 1,
            "retryMaxTimes": retries,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        self.ask(UPDATE_GROUP, {}, json.dumps(described).encode())

    def count(self, topic: str, queue: int = 0) -> int:
        """How many messages a queue has had; nothing when there is no such topic."""
        try:
            return int(self.ask(GET_MAX_OFFSET, {"topic": topic, "queueId": queue})["offset"])
        except RemoteError:
            return 0
