"""Java brokers and an Eruca with accounts: they cannot authenticate, so the configuration has to allow them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eruca._net.caller import Caller
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.signature import Credentials
from tests.accounts import ADMIN, describe, write_accounts
from tests.clients.stage import poll
from tests.integration.broker.requests import send_header
from tests.interop.javapeer import JavaBroker, Peer
from tests.patience import PATIENCE_S
from tests.replication.pairs import Member, Names, start_java_member

MEMBERS = Credentials("members", "the secret of the members")
_SEGMENT = 1024 * 1024


@pytest.fixture
def guard(tmp_path: Path) -> dict[str, object]:
    """Settings of a broker with accounts. A Java broker does not sign, so its address has to be listed."""
    write_accounts(tmp_path / "plain_acl.yml", describe(MEMBERS, broker=True), brokerRemoteAddresses=["127.0.0.1"])
    return {
        "aclEnable": "true",
        "aclFile": tmp_path / "plain_acl.yml",
        "brokerAccessKey": MEMBERS.access_key,
        "brokerSecretKey": MEMBERS.secret_key,
        "mappedFileSizeCommitLog": _SEGMENT,
    }


async def send(address: str, credentials: Credentials | None) -> int:
    """Send a message to a broker; return the code of the response."""
    caller = Caller(credentials=credentials)
    try:
        command = make_request(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"hello")
        return (await caller.call(address, command, PATIENCE_S * 1000)).code
    finally:
        await caller.close()


@asynccontextmanager
async def run_java(peer: Peer, home: Path, names: Names, broker_id: int, role: str) -> AsyncIterator[JavaBroker]:
    settings = {"mappedFileSizeCommitLog": _SEGMENT}
    broker = await asyncio.to_thread(
        start_java_member, peer, home, names.address, broker_id=broker_id, role=role, settings=settings
    )
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.end)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.timeout(600)
async def test_a_java_slave_of_our_master_with_accounts(
    allowed: bool, peer: Peer, tmp_path: Path, guard: dict[str, object]
) -> None:
    settings = {**guard, "haAllowUnauthenticated": str(allowed).lower()}
    async with Names(tmp_path / "names") as names:
        master = Member(tmp_path / "ours", names.address, broker_id=0, role="SYNC_MASTER", settings=settings)
        async with master, run_java(peer, tmp_path / "java", names, 1, "SLAVE"):
            if allowed:
                # A slave counts once it has connected.
                await poll(lambda: send(master.address, ADMIN), lambda code: code == ResponseCode.SUCCESS)
                return
            await poll(lambda: master.read_log(20_000), lambda text: "is not accepted as a slave" in text)
            assert "it does not authenticate, which this master requires (aclEnable)" in await master.read_log(20_000)
            assert await send(master.address, ADMIN) == ResponseCode.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.timeout(600)
async def test_our_slave_with_accounts_of_a_java_master(
    allowed: bool, peer: Peer, tmp_path: Path, guard: dict[str, object]
) -> None:
    settings = {**guard, "haAllowUnauthenticated": str(allowed).lower()}
    async with Names(tmp_path / "names") as names, run_java(peer, tmp_path / "java", names, 0, "SYNC_MASTER") as java:
        slave = Member(tmp_path / "ours", names.address, broker_id=1, role="SLAVE", settings=settings)
        async with slave:
            if allowed:
                await poll(lambda: send(java.address, None), lambda code: code == ResponseCode.SUCCESS)
                return
            await poll(lambda: slave.read_log(20_000), lambda text: "is not copied: it does not authenticate" in text)
            assert await send(java.address, None) == ResponseCode.SLAVE_NOT_AVAILABLE
