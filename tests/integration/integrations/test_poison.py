"""Messages that Celery and taskiq cannot read: they become dead letters, and what comes after them is worked on."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from blockbuster import BlockBuster
from kombu import Connection
from kombu.utils.json import dumps
from taskiq import AckableMessage

import eruca.integrations.kombu
from eruca import Message, MessageQueue, sync
from eruca._testing.embedded import EmbeddedBroker
from eruca._wire.record import Record
from eruca._wire.sysflag import COMPRESSED
from eruca.errors import NetError
from eruca.integrations.taskiq import ErucaBroker
from tests.integration.broker.conftest import excuse_new_files

SECONDS_MAX = 20.0
# Not text, not JSON, not an object, without properties, and with a body that its encoding does not allow.
POISON = [
    b"\xff\xfe",
    b"not JSON",
    b"[1, 2]",
    b'{"body": "", "headers": {}}',
    dumps({"body": base64.b64encode(b"x").decode(), "properties": {"body_encoding": "rot13"}}).encode(),
]


@pytest.fixture
def excuse_calls() -> Callable[[BlockBuster], None]:
    """The broker runs in a thread of this process."""
    return excuse_new_files


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(hurry=True) as running:
        yield running


def read_dead_letters(broker: EmbeddedBroker, group: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with sync.PullConsumer(
        broker.nameserver, group="undertaker", subscribe=f"%DLQ%{group}", start="earliest"
    ) as consumer:
        end = time.monotonic() + SECONDS_MAX
        while len(found) < count and time.monotonic() < end:
            found += [message.body for message in consumer.poll(timeout=1.0)]
    return found


def test_what_is_not_kombu_s_becomes_a_dead_letter(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.create_topic("celery-poison", 1)
    with (
        sync.Producer(broker.nameserver, group="stranger") as stranger,
        Connection(f"eruca://{broker.nameserver}") as connection,
    ):
        for body in POISON:
            stranger.send("celery-poison", body)
        with connection.SimpleQueue("celery-poison") as queue:
            queue.put({"task": "good"})
            message = queue.get(timeout=SECONDS_MAX)
            assert message.payload == {"task": "good"}
            message.ack()
            assert sorted(read_dead_letters(broker, "celery-celery-poison", len(POISON))) == sorted(POISON)
    assert caplog.text.count("was not written by kombu and becomes a dead letter") == len(POISON)
    # Nothing of it holds up the offset of the group.
    with sync.Consumer(broker.nameserver, group="celery-celery-poison", subscribe="celery-poison") as consumer:
        (queue_of_topic,) = consumer.queues
        assert consumer._twin._member.inboxes[queue_of_topic].commit_offset == len(POISON) + 1


def test_a_dead_letter_waits_for_its_broker(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("eruca.integrations.kombu._BURY_PAUSE_S", 0.01)

    class Stubborn:
        tried = 0

        async def bury(self) -> None:
            self.tried += 1
            if self.tried < 3:
                raise NetError("not now")

    message = Stubborn()
    asyncio.run(eruca.integrations.kombu._bury(message))  # type: ignore[arg-type]
    assert message.tried == 3
    assert caplog.text.count("could not be made a dead letter") == 2


def test_what_taskiq_cannot_unpack_becomes_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    buried: list[int] = []

    class Packed(Message):
        async def bury(self) -> None:
            buried.append(self.offset)

    async def join(broker: ErucaBroker) -> AsyncIterator[Message]:
        return give()

    async def give() -> AsyncIterator[Message]:
        for offset, flag in enumerate([COMPRESSED, 0]):
            record = Record("taskiq", queue_offset=offset, body=b"not zlib", sys_flag=flag, properties=b"")
            yield Packed(record, MessageQueue("broker-a", 0, "taskiq"))

    async def listen() -> list[object]:
        return [message async for message in ErucaBroker("127.0.0.1:1").listen()]

    monkeypatch.setattr(ErucaBroker, "_join", join)
    (message,) = asyncio.run(listen())
    assert isinstance(message, AckableMessage)
    assert (message.data, buried) == (b"not zlib", [0])
