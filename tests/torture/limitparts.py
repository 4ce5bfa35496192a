"""Clients that try to use more than a server has for them, each with the weakest account that may send its requests.

`python -m tests.torture.limitparts BROKER NAMES SIZE` runs each part named on a line of standard input, and prints
`done` after it. A size of 1 is the full attack. Variables have the keys of accounts, and the address of the metrics.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from eruca._cli.store import raise_open_files_limit
from eruca._net.tls import Tls, make_client_context
from eruca._wire.bodies import HeartbeatData, ProducerData, encode_json
from eruca._wire.codes import RequestCode
from eruca._wire.frame import Command, encode_command, make_request
from eruca._wire.headers import RouteHeader, SendBackHeader
from eruca._wire.properties import encode_properties
from eruca._wire.signature import Credentials
from tests.integration.broker.requests import EXPRESSION, HOLD, pull_header, send_header
from tests.torture.hostileparts import LARGE, Target, open_crowd, scale, stop_reading
from tests.unit.net.rawpeer import RawPeer, open_peer

# An account that may publish to and subscribe to anything, and one that may do nothing but look.
KEYS = "LIMITS_KEYS"
KEYS_TO_LOOK = "LIMITS_KEYS_TO_LOOK"
# Where the metrics are, which need no account.
METRICS = "LIMITS_METRICS"
_STRANGERS = 5000
_DRIPPING = 2000
_TOPICS = 3000
_SCRAPERS = 500
_LONG_NAME = "k" * 30_000
_SECONDS = 15.0
_SECONDS_MIN = 2.0
# A server is told to wait at most this long for one request.
FRAME_SECONDS = 10


def sign(request: Command, which: str = KEYS) -> Command:
    """Sign a request with the weakest account that may send it."""
    keys = os.environ.get(which, "").split()
    account = Credentials(*keys) if keys else None
    if account is not None:
        account.sign(request)
    return request


class Silent(asyncio.Protocol):
    """A connection that reads and forgets."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.heard = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Count it."""
        self.heard += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server closed it."""
        self.transport = None


async def connect_many(address: str, count: int, tls: ssl.SSLContext | None = None) -> list[Silent]:
    """Open connections, some at a time."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    found: list[Silent] = []
    for _ in range(0, count, 10):
        opening = [loop.create_connection(Silent, host, int(port), ssl=tls) for _ in range(10)]
        opened = await asyncio.gather(*opening)
        found += [peer for _, peer in opened]
    return found[:count]


def drop_all(peers: list[Silent]) -> None:
    """Close connections at once."""
    for peer in peers:
        if peer.transport is not None:
            peer.transport.abort()


def trust_all() -> ssl.SSLContext:
    """TLS that accepts the certificate that a server has made."""
    return make_client_context(Tls(verify=False))


async def stay_strangers_encrypted(target: Target, size: float) -> None:
    """The same with TLS, which every port accepts."""
    await stay_strangers(target, size, trust_all())


async def stay_strangers(target: Target, size: float, tls: ssl.SSLContext | None = None) -> None:
    """5,000 connections that never authenticate: a third is silent, the others ask for things they may not have."""
    rng = random.Random(5)
    halves = [
        (address, await connect_many(address, scale(_STRANGERS // 2, size), tls))
        for address in (target.broker, target.names)
    ]
    asked = {
        target.broker: [
            make_request(RequestCode.SEND_MESSAGE_V2, send_header("Stranger"), b"x", opaque=1),
            make_request(RequestCode.PULL_MESSAGE, pull_header("Good"), opaque=2),
            make_request(RequestCode.GET_BROKER_CONFIG, opaque=3),
        ],
        target.names: [
            make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic="Good"), opaque=1),
            make_request(RequestCode.GET_NAMESRV_CONFIG, opaque=2),
        ],
    }
    frames = {address: [encode_command(request) for request in requests] for address, requests in asked.items()}
    try:
        end = asyncio.get_running_loop().time() + max(_SECONDS_MIN, _SECONDS * size)
        while asyncio.get_running_loop().time() < end:
            for address, peers in halves:
                # Each of them about once a second; a crowd on a network does not speak in unison.
                for peer in rng.sample(peers[len(peers) // 3 :], max(1, len(peers) // 150)):
                    if peer.transport is not None:
                        peer.transport.write(rng.choice(frames[address]))
            await asyncio.sleep(0.01)
    finally:
        for _, peers in halves:
            drop_all(peers)


async def drip(target: Target, size: float) -> None:
    """2,000 connections that send one byte a second, until the servers have closed all of them."""
    frame = encode_command(sign(make_request(RequestCode.SEND_MESSAGE_V2, send_header("Drip"), bytes(1000), opaque=1)))
    peers = await connect_many(target.broker, scale(_DRIPPING // 2, size))
    peers += await connect_many(target.names, scale(_DRIPPING // 2, size))
    try:
        for number in range(len(frame) - 1):
            left = [peer for peer in peers if peer.transport is not None]
            if not left:
                return
            assert number < 6 * FRAME_SECONDS, f"{len(left)} connections are still open"
            for part in range(100):  # spread over the second
                for peer in left[part::100]:
                    if peer.transport is not None:
                        peer.transport.write(frame[number : number + 1])
                await asyncio.sleep(0.01)
    finally:
        drop_all(peers)


async def flood(
    address: str, request: Command, count: int, seconds: float, *, size: int = 40, tls: ssl.SSLContext | None = None
) -> None:
    """Connections that send a signed request repeatedly and read nothing."""
    frames = encode_command(request) * 100
    async with open_crowd(address, size, tls) as crowd:
        for peer in crowd:
            stop_reading(peer)
            for _ in range(count // 100):
                peer.write_bytes(frames)
        await asyncio.sleep(seconds)


async def leave_pulls_unread(target: Target, size: float) -> None:
    """Pulls of a large message: 80,000 answers of 4 MB, none of which is read."""
    async with open_peer(target.broker) as sender:
        for _ in range(3):
            await ask_signed(sender, make_request(RequestCode.SEND_MESSAGE_V2, send_header("Unread"), LARGE, opaque=1))
    pull = make_request(RequestCode.PULL_MESSAGE, pull_header("Unread", max_message_nums=1), opaque=1)
    await flood(target.broker, sign(pull), scale(2000, size), max(_SECONDS_MIN, _SECONDS / 3 * size))


async def leave_pulls_unread_encrypted(target: Target, size: float) -> None:
    """The same with TLS, on ten times as many connections: each hides a response in the buffers of TLS."""
    async with open_peer(target.broker) as sender:
        await ask_signed(sender, make_request(RequestCode.SEND_MESSAGE_V2, send_header("Secret"), LARGE, opaque=1))
    pull = sign(make_request(RequestCode.PULL_MESSAGE, pull_header("Secret", max_message_nums=1), opaque=1))
    seconds = max(_SECONDS_MIN, _SECONDS / 3 * size)
    await flood(target.broker, pull, 100, seconds, size=scale(400, size), tls=trust_all())


async def leave_routes_unread(target: Target, size: float) -> None:
    """Small answers that are not read: routes of a name server, and offsets of a broker."""
    route = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic="Good"), opaque=1)
    await flood(target.names, sign(route, KEYS_TO_LOOK), scale(20_000, size), max(_SECONDS_MIN, _SECONDS / 3 * size))
    unknown = make_request(RequestCode.PULL_MESSAGE, pull_header("Good", queue_offset=10**12), opaque=1)
    await flood(target.broker, sign(unknown), scale(20_000, size), max(_SECONDS_MIN, _SECONDS / 3 * size))


async def leave_tables_unread(target: Target, size: float) -> None:
    """Large answers for any account: 3,000 topics, lists of them and of clients, of groups whose members disagree."""
    count = scale(_TOPICS, size)
    async with open_peer(target.broker) as sender:
        for number in range(count):
            request = make_request(RequestCode.SEND_MESSAGE_V2, send_header(f"many-{number}"), b"x", opaque=1)
            await ask_signed(sender, request)
        data = HeartbeatData(
            client_id="crowd", producer_data_set=[ProducerData(group_name=f"p{number}") for number in range(count)]
        )
        await ask_signed(sender, make_request(RequestCode.HEART_BEAT, body=encode_json(data), opaque=1))
        for code in (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.GET_BROKER_RUNTIME_INFO,
        ):
            request = sign(make_request(code, opaque=1), KEYS_TO_LOOK)
            await flood(target.broker, request, scale(1000, size), max(_SECONDS_MIN, _SECONDS / 5 * size))
        request = sign(make_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, opaque=1), KEYS_TO_LOOK)
        await flood(target.names, request, scale(1000, size), max(_SECONDS_MIN, _SECONDS / 5 * size))


async def scrape(target: Target, size: float) -> None:
    """The port for metrics: connections that ask for nothing, for pages that do not exist, or do not read metrics."""
    rng = random.Random(11)
    address = os.environ.get(METRICS, "") or target.broker
    end = asyncio.get_running_loop().time() + max(_SECONDS_MIN, _SECONDS * size)
    frames = [b"", b"GET /", b"GET /no HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"]
    while asyncio.get_running_loop().time() < end:
        peers = await connect_many(address, scale(_SCRAPERS, size))
        for peer in peers:
            if peer.transport is not None:
                peer.transport.pause_reading()
                peer.transport.write(rng.choice(frames))
        await asyncio.sleep(0.2)
        drop_all(peers)


async def hold_too_much(target: Target, size: float) -> None:
    """Held pulls: 20 connections with 20,000 each, and a message that wakes them all; nobody reads."""
    async with open_peer(target.broker) as sender:
        first = await ask_signed(sender, make_request(RequestCode.SEND_MESSAGE_V2, send_header("Held"), b"x", opaque=1))
        header = pull_header(
            "Held",
            queue_offset=int(first.ext_dict()["queueOffset"]) + 1,
            sys_flag=HOLD | EXPRESSION,
            suspend_timeout_ms=60_000,
        )
        held = encode_command(sign(make_request(RequestCode.PULL_MESSAGE, header, opaque=1))) * 100
        async with open_crowd(target.broker, 20) as crowd:
            for peer in crowd:
                stop_reading(peer)
                for _ in range(scale(200, size)):
                    peer.write_bytes(held)
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(_SECONDS):
                        await peer.writer.drain()
            await ask_signed(
                sender, make_request(RequestCode.SEND_MESSAGE_V2, send_header("Held"), bytes(100_000), opaque=1)
            )
            await asyncio.sleep(max(_SECONDS_MIN, _SECONDS / 3 * size))


async def cancel_much(target: Target, size: float) -> None:
    """Cancellations of delayed messages that nobody sent: 5,000 with keys of 30 kB, each for 35 days."""
    async with open_peer(target.broker) as sender:
        for number in range(scale(5000, size)):
            await send_with(sender, "Cancelled", TIMER_DEL_UNIQKEY=f"{number}{_LONG_NAME}", TIMER_DELAY_SEC="3000000")


async def send_back_much(target: Target, size: float) -> None:
    """Messages in a retry topic that name 5,000 topics of 30 kB, which their group sends back."""
    async with open_peer(target.broker) as sender:
        for number in range(scale(5000, size)):
            sent = await send_with(sender, "%RETRY%limits", RETRY_TOPIC=f"{number}{_LONG_NAME}")
            position = int(sent.ext_dict()["msgId"][-16:], 16)
            header = SendBackHeader(offset=position, group="limits", delay_level=3)
            await ask_signed(sender, make_request(RequestCode.CONSUMER_SEND_MSG_BACK, header, opaque=1))


async def send_with(peer: RawPeer, topic: str, **properties: str) -> Command:
    """Send a small message with properties."""
    header = send_header(topic, properties=encode_properties(properties).decode())
    return await ask_signed(peer, make_request(RequestCode.SEND_MESSAGE_V2, header, b"x", opaque=1))


async def answer_nobody(target: Target, size: float) -> None:
    """Responses to no call, from connections that never authenticate."""
    stray = make_request(RequestCode.SEND_MESSAGE_V2, opaque=1).answer(0)
    for address in (target.broker, target.names):
        await flood(address, stray, scale(20_000, size), max(_SECONDS_MIN, _SECONDS / 3 * size))


async def ask_signed(peer: RawPeer, request: Command) -> Command:
    """Ask one thing that must succeed."""
    answer = await peer.ask(sign(request))
    assert answer.code == 0, f"{answer.code} {answer.remark}"
    return answer


PARTS: dict[str, Callable[[Target, float], Awaitable[None]]] = {
    "strangers": stay_strangers,
    "strangers-tls": stay_strangers_encrypted,
    "drip": drip,
    "unread-pulls": leave_pulls_unread,
    "unread-tls": leave_pulls_unread_encrypted,
    "unread-routes": leave_routes_unread,
    "unread-tables": leave_tables_unread,
    "scrapers": scrape,
    "held": hold_too_much,
    "cancellations": cancel_much,
    "sent-back": send_back_much,
    "strays": answer_nobody,
}


if __name__ == "__main__":
    raise_open_files_limit()
    # It warns about every write to a connection that the server has closed, which is what servers are to do here.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    print("ready", flush=True)
    for line in sys.stdin:
        asyncio.run(PARTS[line.strip()](Target(sys.argv[1], sys.argv[2]), float(sys.argv[3])))  # type: ignore[arg-type]
        print("done", flush=True)
