"""Spans of sends end, whatever becomes of the send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eruca._client.produce.producer import Producer
from eruca._client.produce.transactions import TransactionalProducer
from eruca.errors import ClientClosed, MessageIllegal
from tests.unit.client.conftest import MakeProducer
from tests.unit.client.scripted import ScriptedCluster


class Spans:
    """Takes the place of telemetry: what began, and how it ended."""

    def __init__(self, context: str = "") -> None:
        self.began: list[object] = []
        self.ended: list[tuple[object, BaseException | None]] = []
        self.context = context

    def start_send(self, topic: str, group: str, *described: dict[str, str], body_bytes: int | None = None) -> object:
        for each in described:
            each["traceparent"] = self.context
        self.began.append(object())
        return self.began[-1]

    def end_send(self, operation: object, *, error: BaseException | None = None, **_: object) -> None:
        self.ended.append((operation, error))


def use_spans(producer: Producer, spans: Spans) -> Spans:
    packer: Any = producer._engine.packer
    packer.telemetry = spans
    return spans


@pytest.mark.parametrize("how", ["send", "send_oneway", "request", "send_transaction", "transaction"])
async def test_a_span_ends_when_its_send_is_cancelled_while_it_is_compressed(
    scripted: ScriptedCluster, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, TransactionalProducer, check=lambda _: None, compress_from=10)
    spans = use_spans(producer, Spans("c"))
    began = asyncio.Event()

    async def compress_for_ever(parcel: object) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(producer._engine.packer, "compress", compress_for_ever)
    if how == "transaction":
        work = producer.transaction("orders", b"x" * 100).__aenter__()
    else:
        more = {"local": lambda _: None} if how == "send_transaction" else {}
        work = getattr(producer, how)("orders", b"x" * 100, **more)
    task = asyncio.get_running_loop().create_task(work)
    await began.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [(operation, type(error)) for operation, error in spans.ended] == [(spans.began[0], asyncio.CancelledError)]


async def test_a_span_ends_when_the_producer_is_closed_while_its_message_is_compressed(
    scripted: ScriptedCluster, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, compress_from=10)
    spans = use_spans(producer, Spans("c"))

    async def close_meanwhile(parcel: object) -> None:
        await producer.close()

    monkeypatch.setattr(producer._engine.packer, "compress", close_meanwhile)
    with pytest.raises(ClientClosed):
        await producer.send("orders", b"x" * 100)
    assert len(spans.began) == len(spans.ended) == 1


async def test_a_span_ends_when_its_own_context_makes_the_message_too_large(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    producer = await make_producer(scripted.address)
    spans = use_spans(producer, Spans("c" * 40_000))
    with pytest.raises(MessageIllegal, match="at most"):
        await producer.send("orders", b"x")
    assert len(spans.began) == len(spans.ended) == 1


async def test_keys_are_checked_with_telemetry_too(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    producer = await make_producer(scripted.address)
    use_spans(producer, Spans("c"))
    with pytest.raises(MessageIllegal, match="space"):
        await producer.send("orders", b"x", keys=["a b"])
