"""Headers of the requests that clients send most, with everything usual filled in."""

from __future__ import annotations

from typing import Any

from eruca._wire.codes import RequestCode
from eruca._wire.headers import PullMessageHeader, SendMessageV2Header
from tests.integration.broker.peer import Answer, Peer

COMMIT = 1
HOLD = 2
EXPRESSION = 4


def send_header(topic: str = "T", **fields: Any) -> SendMessageV2Header:
    """The header of a send."""
    usual: dict[str, Any] = {
        "producer_group": "producers",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
    }
    return SendMessageV2Header(**usual | fields)


def pull_header(topic: str = "T", **fields: Any) -> PullMessageHeader:
    """The header of a pull that waits for nothing and has its expression with it."""
    usual: dict[str, Any] = {
        "consumer_group": "readers",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": 0,
        "max_message_nums": 32,
        "sys_flag": EXPRESSION,
        "commit_offset": 0,
        "suspend_timeout_ms": 10_000,
        "subscription": "*",
        "subscription_version": 0,
        "expression_type": "TAG",
    }
    return PullMessageHeader(**usual | fields)


async def try_send(peer: Peer, topic: str = "T", body: bytes = b"hello", **fields: Any) -> Answer:
    """Send a message; return the response, whatever its code."""
    return await peer.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, **fields), body)


async def try_pull(peer: Peer, topic: str = "T", **fields: Any) -> Answer:
    """Pull; return the response, whatever its code."""
    return await peer.ask(RequestCode.PULL_MESSAGE, pull_header(topic, **fields))
