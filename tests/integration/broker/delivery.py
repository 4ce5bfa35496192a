"""Shared by the tests of delivery: pulling, reading the store, and a producer that answers checks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from eruca._broker.app import Broker
from eruca._net.link import Link
from eruca._store.filesystem import LocalFileSystem
from eruca._store.layout import StorePaths, detect_options
from eruca._store.messagestore import open_store
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, encode_command
from eruca._wire.headers import PullMessageHeader, SendMessageV2Header
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record, decode_record, decode_records
from tests.integration.broker.peer import Peer
from tests.patience import PATIENCE_S

# The expression is in the request; wait when there is nothing.
HELD = 2 | 4


async def pull(
    peer: Peer, topic: str, queue_id: int = 0, offset: int = 0, *, expression: str = "*", kind: str = "TAG"
) -> list[Record]:
    """Pull once, waiting up to 10 s for a message."""
    header = PullMessageHeader(
        consumer_group="readers",
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_message_nums=32,
        sys_flag=HELD,
        commit_offset=0,
        suspend_timeout_ms=10_000,
        subscription=expression,
        subscription_version=0,
        expression_type=kind,
    )
    answer = await peer.ask(RequestCode.PULL_MESSAGE, header)
    return decode_records(answer.command.body) if answer.code == ResponseCode.SUCCESS else []


async def send_half(peer: Peer, topic: str = "Orders", *, born_ms: int, group: str = "payers", **more: str) -> Record:
    """Send a half message; return it as it is stored."""
    properties = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": "0" * 32, "WAIT": "true", "TAGS": "TagA"} | more
    header = SendMessageV2Header(
        producer_group=group,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=4,
        born_timestamp=born_ms,
        flag=77,
        properties=encode_properties(properties).decode(),
    )
    answer = await peer.expect(RequestCode.SEND_MESSAGE_V2, header, b"pay")
    assert answer.ext is not None
    return look(peer.broker, int(answer.ext["msgId"][-16:], 16))


def look(broker: Broker, position: int) -> Record:
    """The message at a position of the commit log."""
    view = broker.store.reader.view_record(position)
    assert view is not None
    return decode_record(view)


def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    """Return every message of a queue, even of topics that cannot be pulled."""
    store = broker.store
    queue = store.queues.get(topic, queue_id)
    if queue is None:
        return []
    entries = [queue.entry(offset) for offset in range(queue.min_offset, queue.max_offset)]
    return [look(broker, entry.position) for entry in entries if entry is not None]


class Inbox:
    """Handles requests of the broker and keeps them; answers with a code, or not at all when they are oneway."""

    def __init__(self, code: int = ResponseCode.SUCCESS) -> None:
        self.code = code
        self.commands: asyncio.Queue[Command] = asyncio.Queue()

    def handle(self, link: Link, command: Command) -> bytes | None:
        self.commands.put_nowait(command)
        return encode_command(command.answer(self.code, remark="as the test wants"))

    async def get(self) -> Command:
        """The next request."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.commands.get()


def cut_unheard(root: Path, position: int) -> None:
    """Cut the log of a stopped broker as if it had been killed in the middle of it, without notifications."""
    options = detect_options(LocalFileSystem(), StorePaths(root))
    store = open_store(root, options)
    row = store.lineage.set_aside(position, epoch=0)
    assert row is not None
    store.lineage.save(truncating=row.begin, diverged=[row])
    store.close()
    store = open_store(root, options)
    assert (store.log.tail, store.lineage.record.truncating) == (position, -1)
    store.close()


def append_to(root: Path, message: Record) -> None:
    """Append a message to the log of a stopped broker, as its master may while it is a slave."""
    store = open_store(root, detect_options(LocalFileSystem(), StorePaths(root)))
    store.append(message)
    store.close()
