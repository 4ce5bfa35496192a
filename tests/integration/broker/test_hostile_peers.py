"""Hostile peers of a server in a separate process: it stays up, its memory stays bounded, its log stays short."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import encode_command, make_request
from tests.integration.broker.requests import pull_header, send_header
from tests.integration.broker.serving import Serving, check_well
from tests.paths import GOLDEN
from tests.unit.net.rawpeer import SECONDS_MAX, RawPeer, open_peer

MIB = 1024 * 1024
MUTANTS = 8 * int(os.environ.get("ERUCA_SEEDS", "100"))
# They change permissions on purpose, so a healthy client may fail after them.
LEFT_OUT = {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all tests here: each test finds it as the previous one left it."""
    server = Serving(tmp_path_factory.mktemp("hostile"))
    yield server
    assert server.end() == 0


@pytest.fixture(autouse=True)
async def stay_well(serving: Serving) -> AsyncIterator[None]:
    """After every test a client is served, and no internal error is in the log."""
    await check_well(serving)
    await asyncio.to_thread(serving.complaints)
    yield
    await check_well(serving)
    assert serving.process.poll() is None
    assert await asyncio.to_thread(serving.list_files) == ["eruca-data"]


async def settle(serving: Serving, is_enough: Callable[[int], bool]) -> int:
    """Wait until the memory is as expected; return the final value."""
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while not is_enough(memory := await asyncio.to_thread(serving.memory)):
                await check_well(serving)
    except TimeoutError:
        return await asyncio.to_thread(serving.memory)
    return memory


async def crowd(
    stack: AsyncExitStack, address: str, count: int, greet: Callable[[RawPeer], Awaitable[None]]
) -> list[RawPeer]:
    """Open this many connections, each of which does something first."""
    peers = []
    for _ in range(count):
        peer = await stack.enter_async_context(open_peer(address))
        await greet(peer)
        peers.append(peer)
    return peers


# -- crowds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["broker", "names"])
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\1\0\0\0\0\x80{"], ids=["silent", "one byte", "half a header"])
async def test_a_thousand_connections_that_say_nothing(serving: Serving, side: str, data: bytes) -> None:
    before = await asyncio.to_thread(serving.memory)

    async def greet(peer: RawPeer) -> None:
        peer.write_bytes(data)

    async with AsyncExitStack() as stack:
        await crowd(stack, getattr(serving, side), 1000, greet)
        await check_well(serving)
        assert await asyncio.to_thread(serving.memory) - before < 40 * MIB
    assert await asyncio.to_thread(serving.complaints) == []


async def test_announcing_much_costs_nothing(serving: Serving) -> None:
    before = await asyncio.to_thread(serving.memory)
    head = encode_command(make_request(RequestCode.SEND_MESSAGE_V2, send_header(), b"x", opaque=1))
    announced = (16 * MIB - 4).to_bytes(4, "big") + head[4:]

    async def greet(peer: RawPeer) -> None:
        peer.write_bytes(announced)

    async with AsyncExitStack() as stack:
        await crowd(stack, serving.broker, 200, greet)
        await check_well(serving)
        assert await asyncio.to_thread(serving.memory) - before < 20 * MIB


async def test_a_stalled_frame_holds_what_was_sent_and_gives_it_back(serving: Serving) -> None:
    before = await asyncio.to_thread(serving.memory)
    head = encode_command(make_request(RequestCode.SEND_MESSAGE_V2, send_header(), b"", opaque=1))
    announced = (16 * MIB - 4).to_bytes(4, "big") + head[4:] + b"x" * (8 * MIB)

    async def greet(peer: RawPeer) -> None:
        peer.write_bytes(announced)
        await peer.writer.drain()

    async with AsyncExitStack() as stack:
        await crowd(stack, serving.broker, 8, greet)
        await check_well(serving)
        assert await asyncio.to_thread(serving.memory) - before < 120 * MIB
    assert await settle(serving, lambda memory: memory - before < 24 * MIB) - before < 24 * MIB


async def test_a_client_that_never_reads_is_not_served_without_end(serving: Serving) -> None:
    async with open_peer(serving.broker) as peer:
        large = make_request(RequestCode.SEND_MESSAGE_V2, send_header("Large"), b"x" * (3 * MIB), opaque=1)
        assert (await peer.ask(large)).code == ResponseCode.SUCCESS
    before = await asyncio.to_thread(serving.memory)
    pulls = encode_command(make_request(RequestCode.PULL_MESSAGE, pull_header("Large"), opaque=1)) * 1000  # 3 GiB
    async with open_peer(serving.broker) as greedy:
        greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
        greedy.write_bytes(pulls)
        for _ in range(20):
            await check_well(serving)
        assert await asyncio.to_thread(serving.memory) - before < 160 * MIB
        greedy.writer.transport.abort()
    assert await settle(serving, lambda memory: memory - before < 40 * MIB) - before < 40 * MIB


async def test_many_held_pulls_of_one_client_that_never_reads(serving: Serving) -> None:
    """All of them wake in one turn; the answers must not all be made before the first is written."""
    async with open_peer(serving.broker) as sender, open_peer(serving.broker) as greedy:
        first = make_request(RequestCode.SEND_MESSAGE_V2, send_header("Held"), b"x", opaque=1)
        assert (await sender.ask(first)).code == ResponseCode.SUCCESS
        before = await asyncio.to_thread(serving.memory)
        header = pull_header("Held", queue_offset=1, sys_flag=2 | 4, suspend_timeout_ms=60_000)
        held = encode_command(make_request(RequestCode.PULL_MESSAGE, header, opaque=1))
        probe = encode_command(make_request(9, opaque=2))
        greedy.write_bytes(held * 2000 + probe)
        assert (await greedy.read()).opaque == 2  # all are held
        greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
        large = make_request(RequestCode.SEND_MESSAGE_V2, send_header("Held"), b"x" * (3 * MIB), opaque=3)
        assert (await sender.ask(large)).code == ResponseCode.SUCCESS  # 6 GiB of answers
        for _ in range(20):
            await check_well(serving)
            # One or two answers; the other pulls wait until their peer reads.
            assert await asyncio.to_thread(serving.memory) - before < 60 * MIB
        greedy.writer.transport.abort()
    assert await settle(serving, lambda memory: memory - before < 40 * MIB) - before < 40 * MIB
    assert await asyncio.to_thread(serving.complaints) == []


# -- garbage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["broker", "names"])
async def test_a_million_wrongs_make_few_lines(serving: Serving, side: str) -> None:
    bad = make_request(RequestCode.SEND_MESSAGE_V2, send_header("../x"), b"x", opaque=1)
    bad_pull = make_request(RequestCode.PULL_MESSAGE, pull_header("../x"), opaque=1)
    babble = (encode_command(bad) + encode_command(bad_pull) + encode_command(make_request(9999, opaque=1))) * 3000
    async with open_peer(getattr(serving, side)) as peer:
        peer.write_bytes(babble)
        peer.writer.write_eof()
        await peer.wait_for_end()
    for _ in range(200):
        async with open_peer(getattr(serving, side)) as peer:
            peer.write_bytes(b"\xff" * 64)
            await peer.wait_for_end()
    said = await asyncio.to_thread(serving.complaints)
    assert len(said) <= 2, said[:10]


# -- mutated recordings ----------------------------------------------------------------------------------------------


def read_frames() -> list[tuple[str, bytes]]:
    """Every recorded request of a client or broker, and its receiver."""
    found = []
    for name in ("frames.jsonl", "frames-rocketmq.jsonl"):
        for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            raw = bytes.fromhex(row["rawHex"])
            if row["direction"] != "c2s" or row["kind"] != "request" or row["requestCode"] in LEFT_OUT:
                continue
            if int.from_bytes(raw[:4], "big") == len(raw) - 4:
                found.append(("names" if "namesrv" in row["link"] else "broker", raw))
    return found


TRICKS = [
    b"-1",
    b"2147483648",
    b"-9223372036854775809",
    b"9" * 400,
    b"null",
    b'""',
    b"../../x",
    b"\0",
    b"\xff",
    b"{[",
    b"",
]


def mutate(rng: random.Random, raw: bytes) -> bytes:
    """Mutate a frame; its lengths mostly stay correct, so that the content is parsed."""
    size = int.from_bytes(raw[5:8], "big")
    header, body = bytearray(raw[8 : 8 + size]), bytearray(raw[8 + size :])
    kind = raw[4]
    for _ in range(rng.randint(1, 4)):
        target = body if body and rng.random() < 0.4 else header
        at = rng.randrange(len(target) + 1)
        choice = rng.randrange(6)
        if choice == 0 and at < len(target):
            target[at] ^= 1 << rng.randrange(8)
        elif choice == 1:
            del target[at : at + rng.randint(1, 16)]
        elif choice == 2:
            target[at:at] = rng.choice(TRICKS)
        elif choice == 3:
            digits = [place for place, byte in enumerate(target) if 48 <= byte <= 57]
            if digits:
                place = rng.choice(digits)
                target[place : place + 1] = rng.choice(TRICKS)
        elif choice == 4:
            target[at:at] = target[: rng.randint(0, 64)]
        else:
            target[at : at + 8] = rng.randbytes(8)
    if rng.random() < 0.05:
        kind = rng.randrange(256)
    total = 4 + len(header) + len(body)
    if rng.random() < 0.05:
        total += rng.choice([-1, 1, 1 << 20, 1 << 31])
    return (total % (1 << 32)).to_bytes(4, "big") + bytes([kind]) + len(header).to_bytes(3, "big") + header + body


async def test_mutated_recordings_do_no_harm(serving: Serving) -> None:
    frames = await asyncio.to_thread(read_frames)
    assert len(frames) > 80
    before = await asyncio.to_thread(serving.memory)
    for seed in range(MUTANTS):
        rng = random.Random(seed)
        side, raw = rng.choice(frames)
        bad = mutate(rng, raw)
        async with open_peer(getattr(serving, side)) as peer:
            peer.write_bytes(bad)
            peer.writer.write_eof()
            try:
                await peer.wait_for_end()
            except TimeoutError:
                pytest.fail(f"seed {seed}: {side} neither answered nor closed")
        if seed % 50 == 0:
            await check_well(serving)
            said = [
                line for line in await asyncio.to_thread(serving.complaints) if "Traceback" in line or "ERROR" in line
            ]
            assert not said, f"seed {seed - 50} to {seed}: {said[:5]}"
    said = await asyncio.to_thread(serving.complaints)
    assert [line for line in said if "Traceback" in line or "ERROR" in line] == []
    assert await asyncio.to_thread(serving.memory) - before < 80 * MIB
