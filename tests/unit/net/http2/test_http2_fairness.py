"""Work of one connection gives way to that of others."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest

from eruca._net.http2 import link as link_module
from eruca._net.http2.calls import Call, Kind, Method
from eruca._net.http2.frames import FrameType
from tests.unit.net.http2.rawclient import Owner, Wire, call
from tests.unit.net.rawpeer import turn_until

WORK_SECONDS = 0.0005


def work(call: Call, request: bytes) -> bytes:
    """Take half a slice."""
    end = perf_counter() + WORK_SECONDS
    while perf_counter() < end:
        pass
    return request


METHODS = {"/demo/echo": Method("", Kind.UNARY, work)}


def count_answers(wire: Wire) -> int:
    wire.read_written()
    return len(wire.find(FrameType.DATA))


async def test_the_calls_of_one_read_are_handled_some_at_a_time() -> None:
    wire, other = Wire(Owner(METHODS)), Wire(Owner(METHODS))
    wire.link.data_received(b"".join(call(stream) for stream in range(1, 201, 2)))
    first = count_answers(wire)
    assert first < 20
    assert not wire.transport.reads
    other.link.data_received(call(1))
    assert count_answers(other) == 1, "a short read does not wait"
    turns = 0
    while count_answers(wire) < 100:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10
    await asyncio.sleep(0)
    assert wire.transport.reads


async def test_calls_stay_in_order_when_more_are_read() -> None:
    seen: list[bytes] = []

    def note(call: Call, request: bytes) -> bytes:
        seen.append(request)
        return work(call, request)

    wire = Wire(Owner({"/demo/echo": Method("", Kind.UNARY, note)}))
    streams = list(range(1, 121, 2))
    sent = b"".join(call(stream, b"%d" % stream) for stream in streams)
    wire.link.data_received(sent[: len(sent) // 2])
    wire.link.data_received(sent[len(sent) // 2 :])
    await turn_until(lambda: len(seen) == len(streams))
    assert seen == [b"%d" % stream for stream in streams]


async def test_large_reads_wait_when_the_turn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    wires = [Wire(Owner(METHODS)) for _ in range(20)]
    monkeypatch.setattr(link_module, "_QUICK_BYTES_MAX", 10)
    for wire in wires:
        wire.link.data_received(b"".join(call(stream) for stream in range(1, 21, 2)))
    assert sum(map(count_answers, wires)) < 40
    await turn_until(lambda: sum(map(count_answers, wires)) == 200)


async def test_a_part_of_a_frame_does_not_keep_the_loop_busy() -> None:
    wire = Wire(Owner(METHODS))
    wire.link.data_received(b"".join(call(stream) for stream in range(1, 21, 2)) + call(21)[:20])
    await turn_until(lambda: count_answers(wire) == 10)
    for _ in range(5):
        await asyncio.sleep(0)
    assert wire.transport.reads
    assert not wire.link._is_queued
    wire.link.data_received(call(21)[20:])
    assert count_answers(wire) == 11


async def test_a_connection_that_was_told_to_wait_continues() -> None:
    wire = Wire(Owner(METHODS))
    wire.link.pause_for(0.01)
    wire.link.data_received(call(1) + call(3)[:10])
    assert count_answers(wire) == 0
    assert [wire.transport.reads] == [False]
    await turn_until(lambda: count_answers(wire) == 1)
    await asyncio.sleep(0)
    assert [wire.transport.reads] == [True]
    wire.link.data_received(call(3)[10:])
    assert count_answers(wire) == 2
