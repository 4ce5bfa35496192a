"""Outgoing connections with TLS: an impostor gets no request, whatever is wrong with its certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eruca._net.caller import Caller
from eruca._net.handlers import refuse_unknown
from eruca._net.link import Answer, Link
from eruca._net.tls import OutgoingTls, ServerTls, Tls
from eruca._net.tlsoptions import ClientAuth, TlsMode, TlsOptions
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command, encode_command, make_request
from eruca.errors import ConfigError, ConnectFailed, ConnectionLost, NetError
from tests.authority import Authority, Pair
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import run_server

ECHO = 34
TIMEOUT_MS = PATIENCE_S * 1000


class Place:
    """A server that counts its requests, and the authority that callers trust."""

    def __init__(self, home: Path) -> None:
        self.authority = Authority(home)
        self.stranger = Authority(home, "stranger")
        self.requests = 0

    def handle(self, link: Link, command: Command) -> Answer:
        """Count a request."""
        self.requests += 1
        return encode_command(command.answer(ResponseCode.SUCCESS))

    @asynccontextmanager
    async def serve(self, pair: Pair | None = None, **options: Any) -> AsyncIterator[int]:
        """Serve with a certificate; yields the port."""
        files: dict[str, Any] = {"certificate": str(pair.certificate), "key": str(pair.key)} if pair is not None else {}
        tls = ServerTls(TlsOptions(**files, **options))
        await tls.start()
        try:
            async with run_server({ECHO: self.handle}, refuse_unknown, tls=tls) as server:
                yield server.port
        finally:
            await tls.stop()

    async def call(self, address: str, tls: Tls | ssl.SSLContext | None) -> None:
        """Call it once."""
        caller = Caller(tls=OutgoingTls.choose(tls))
        try:
            assert (await caller.call(address, make_request(ECHO), TIMEOUT_MS)).code == ResponseCode.SUCCESS
        finally:
            await caller.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place for servers."""
    return Place(tmp_path)


async def issue(authority: Authority, *names: str, **how: Any) -> Pair:
    """A certificate for these hosts."""
    return await asyncio.to_thread(authority.issue, "server", names, **how)


async def test_a_certificate_for_the_address_is_accepted(place: Place) -> None:
    pair = await issue(place.authority, "127.0.0.1", "localhost")
    async with place.serve(pair) as port:
        await place.call(f"127.0.0.1:{port}", Tls(ca=place.authority.ca))
        await place.call(f"localhost:{port}", Tls(ca=place.authority.ca))
        context = await asyncio.to_thread(ssl.create_default_context, cafile=str(place.authority.ca))
        await place.call(f"127.0.0.1:{port}", context)
    assert place.requests == 3


async def test_an_impostor_gets_no_request(place: Place) -> None:
    """It has a valid certificate of the right authority, but for another host."""
    pair = await issue(place.authority, "other.example", "10.1.1.1")
    context = await asyncio.to_thread(ssl.create_default_context, cafile=str(place.authority.ca))
    async with place.serve(pair) as port:
        for tls in (Tls(ca=place.authority.ca), context):
            for host in ("127.0.0.1", "localhost"):
                with pytest.raises(
                    ConnectFailed, match=f"not accepted: .*mismatch.*whether the certificate is for {host}"
                ):
                    await place.call(f"{host}:{port}", tls)
        assert place.requests == 0
        await place.call(f"127.0.0.1:{port}", Tls(verify=False))
    assert place.requests == 1


async def test_a_wrong_authority_and_an_expired_certificate_are_refused(place: Place) -> None:
    for authority, expired, told in (
        (place.stranger, False, "unable to get local issuer certificate"),
        (place.authority, True, "certificate has expired"),
    ):
        pair = await issue(authority, "127.0.0.1", expired=expired)
        async with place.serve(pair) as port:
            with pytest.raises(ConnectFailed, match=f"not accepted: {told}; check the CA"):
                await place.call(f"127.0.0.1:{port}", Tls(ca=place.authority.ca))
    assert place.requests == 0


async def test_a_certificate_may_be_trusted_without_its_authority(place: Place) -> None:
    pair = await issue(place.authority, "127.0.0.1")
    async with place.serve(pair) as port:
        await place.call(f"127.0.0.1:{port}", Tls(ca=pair.certificate))
    assert place.requests == 1


async def test_a_self_made_certificate_is_refused_unless_told_otherwise(place: Place) -> None:
    async with place.serve() as port:
        with pytest.raises(ConnectFailed, match="not accepted: self-signed certificate"):
            await place.call(f"127.0.0.1:{port}", Tls())
        assert place.requests == 0
        await place.call(f"127.0.0.1:{port}", Tls(verify=False))
    assert place.requests == 1


async def test_a_server_without_tls_is_named(place: Place) -> None:
    async with place.serve(mode=TlsMode.DISABLED) as port:
        with pytest.raises(ConnectFailed, match="does its port accept TLS"):
            await place.call(f"127.0.0.1:{port}", Tls(verify=False))


async def test_a_plain_caller_gets_nothing_from_a_port_that_needs_tls(place: Place) -> None:
    async with place.serve(mode=TlsMode.ENFORCING) as port:
        with pytest.raises(ConnectionLost, match="does the port require TLS"):
            await place.call(f"127.0.0.1:{port}", None)
    assert place.requests == 0


async def test_a_missing_or_strange_client_certificate_is_refused(place: Place) -> None:
    pair = await issue(place.authority, "127.0.0.1")
    strange = await asyncio.to_thread(place.stranger.issue, "client")
    mine = await asyncio.to_thread(place.authority.issue, "client2")
    ca = place.authority.ca
    async with place.serve(pair, client_auth=ClientAuth.REQUIRE, trust=str(ca)) as port:
        for tls in (Tls(ca=ca), Tls(ca=ca, certificate=strange.certificate, key=strange.key)):
            with pytest.raises(NetError):
                await place.call(f"127.0.0.1:{port}", tls)
        assert place.requests == 0
        await place.call(f"127.0.0.1:{port}", Tls(ca=ca, certificate=mine.certificate, key=mine.key))
    assert place.requests == 1


async def test_a_file_that_is_missing_is_an_error_of_the_configuration(place: Place, tmp_path: Path) -> None:
    async with place.serve() as port:
        with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
            await place.call(f"127.0.0.1:{port}", Tls(ca=tmp_path / "none.pem"))


@pytest.mark.parametrize("address", ["127.0.0.1:70000", "127.0.0.1:x", "no-such-host.invalid:1", "127.0.0.1:1"])
@pytest.mark.parametrize("tls", [None, Tls(verify=False)])
async def test_addresses_that_cannot_be_reached(place: Place, address: str, tls: Tls | None) -> None:
    with pytest.raises(ConnectFailed, match=f"cannot connect to {address}: ."):
        await place.call(address, tls)
