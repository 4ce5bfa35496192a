"""An account that is bound to a client certificate: its secret alone is worth nothing, the certificate is enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca import Tls
from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._net.caller import Caller
from eruca._net.tls import OutgoingTls
from eruca._net.tlsoptions import ClientAuth, TlsOptions
from eruca._wire import headers as h
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.command import Command, make_request
from eruca._wire.signature import Credentials
from eruca.errors import NetError
from tests.accounts import ADMIN, describe, enable_accounts
from tests.authority import Authority, Pair
from tests.integration.broker.conftest import excuse_new_files
from tests.integration.broker.peer import TIMEOUT_MS, find_port
from tests.security.guarded import REFUSED, SMALL, account
from tests.security.samples import TOPIC, short

SHOP, OTHER = account("shop"), account("other")


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pairs(authority: Authority) -> dict[str, Pair]:
    """The certificates of the broker and of two clients."""
    return {name: authority.issue(name) for name in ("server", "shop", "other")}


@pytest.fixture
def access(tmp_path: Path, pairs: dict[str, Pair]) -> AccessOptions:
    """The shop is bound to its certificate."""
    may = [f"{TOPIC}=PUB"]
    return enable_accounts(
        tmp_path / "conf",
        describe(SHOP, topicPerms=may, certificate=pairs["shop"].fingerprint),
        describe(OTHER, topicPerms=may),
    )


@pytest.fixture
async def broker(
    tmp_path: Path, authority: Authority, pairs: dict[str, Pair], access: AccessOptions
) -> AsyncIterator[Broker]:
    """A broker that asks for certificates, and accepts clients without TLS too."""
    tls = TlsOptions(
        certificate=str(pairs["server"].certificate),
        key=str(pairs["server"].key),
        client_auth=ClientAuth.OPTIONAL,
        trust=str(authority.ca),
    )
    broker = Broker(BrokerOptions(port=find_port()), SMALL, tmp_path / "store", access=access, tls=tls)
    await broker.start()
    yield broker
    await broker.stop()


@asynccontextmanager
async def connect(tls: Tls | None, credentials: Credentials | None) -> AsyncIterator[Caller]:
    """A client."""
    caller = Caller(tls=OutgoingTls.choose(tls), credentials=credentials)
    try:
        yield caller
    finally:
        await caller.close()


async def send(broker: Broker, tls: Tls | None, credentials: Credentials | None) -> Command:
    """Send a message."""
    async with connect(tls, credentials) as caller:
        request = make_request(RequestCode.SEND_MESSAGE_V2, short(), b"x")
        return await caller.call(broker.standing.address, request, TIMEOUT_MS)


def present(authority: Authority, pair: Pair) -> Tls:
    """TLS with the certificate of a client."""
    return Tls(ca=authority.ca, certificate=pair.certificate, key=pair.key)


@pytest.fixture(autouse=True)
async def topic(broker: Broker, authority: Authority) -> None:
    """The admin creates the topic."""
    header = h.CreateTopicHeader(topic=TOPIC, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6)
    async with connect(Tls(ca=authority.ca), ADMIN) as caller:
        request = make_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        answer = await caller.call(broker.standing.address, request, TIMEOUT_MS)
    assert answer.code == ResponseCode.SUCCESS


async def test_a_bound_account_needs_its_certificate(
    broker: Broker, authority: Authority, pairs: dict[str, Pair]
) -> None:
    own, other = present(authority, pairs["shop"]), present(authority, pairs["other"])
    assert (await send(broker, own, SHOP)).code == ResponseCode.SUCCESS
    for tls in (other, Tls(ca=authority.ca), None):
        refused = await send(broker, tls, SHOP)
        assert refused.remark == f"{REFUSED}Check signature failed for accessKey={SHOP.access_key}"
    # An account that is not bound works with any.
    for tls in (own, other, Tls(ca=authority.ca), None):
        assert (await send(broker, tls, OTHER)).code == ResponseCode.SUCCESS


async def test_on_a_connection_with_the_certificate_no_signature_is_needed(
    broker: Broker, authority: Authority, pairs: dict[str, Pair]
) -> None:
    own, other = present(authority, pairs["shop"]), present(authority, pairs["other"])
    assert (await send(broker, own, None)).code == ResponseCode.SUCCESS
    for tls in (other, Tls(ca=authority.ca), None):
        assert (await send(broker, tls, None)).remark == f"{REFUSED}No accessKey is configured"
    async with connect(own, None) as caller:
        request = make_request(RequestCode.GET_BROKER_CONFIG)
        refused = await caller.call(broker.standing.address, request, TIMEOUT_MS)
    assert "Need admin permission" in (refused.remark or "")


async def test_a_certificate_of_another_authority_is_not_accepted(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    stranger = await asyncio.to_thread(Authority, tmp_path, "stranger")
    forged = await asyncio.to_thread(stranger.issue, "forged")
    with pytest.raises(NetError):
        await send(broker, present(authority, forged), None)
