"""A real etcd with users, and one with TLS: who may use it, and what happens to a token that is forgotten."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.config import StoreOptions
from eruca._net.certificates import write_self_signed
from eruca._net.etcd import Change, EtcdClient, Transaction
from eruca._net.etcdgateway import EtcdLogin
from eruca._net.tls import Tls, make_client_context
from eruca._wire.names import MASTER
from eruca.errors import ConfigError, EtcdRefused, NetError
from tests.interop.javapeer import find_broker_port
from tests.needs import starts
from tests.patience import PATIENCE_S
from tests.replication.etcdserver import EtcdServer

USER, PASSWORD = "eruca", "correct horse"
LOGIN = EtcdLogin(user=USER, password=PASSWORD)


async def ask(etcd: EtcdServer, path: str, **body: Any) -> None:
    """Call the API of etcd for operators."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        answer = await client.post(f"{etcd.endpoint}/v3/auth/{path}", json=body)
        assert answer.status_code == 200, answer.text


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
async def guarded(etcd: EtcdServer) -> EtcdServer:
    """An etcd whose user may use the keys below /eruca/."""
    for name, password in (("root", "root"), (USER, PASSWORD)):
        await ask(etcd, "user/add", name=name, password=password)
        await ask(etcd, "role/add", name=name)
        await ask(etcd, "user/grant", user=name, role=name)
    keys = {"permType": "READWRITE", "key": encode("/eruca/"), "range_end": encode("/eruca0")}
    await ask(etcd, "role/grant", name=USER, perm=keys)
    await ask(etcd, "enable")
    return etcd


@asynccontextmanager
async def connect(etcd: EtcdServer, login: EtcdLogin | None = LOGIN) -> AsyncIterator[EtcdClient]:
    client = await asyncio.to_thread(EtcdClient, [etcd.endpoint], login=login, timeout_s=PATIENCE_S)
    try:
        yield client
    finally:
        await client.close()


async def use_all(client: EtcdClient) -> None:
    """Make a call of every kind."""
    lease = await client.grant_lease(60)
    assert await client.keep_lease(lease.id) > 0
    revision = await client.put("/eruca/a", b"1", lease.id)
    assert (await client.commit(Transaction().expect("/eruca/a", revision).put("/eruca/b", b"2"))).succeeded
    item = await client.get("/eruca/b")
    assert item is not None and item.value == b"2"
    assert list((await client.get_prefix("/eruca/")).items) == ["/eruca/a", "/eruca/b"]
    await client.revoke_lease(lease.id)
    await client.delete_prefix("/eruca/")


# --- users ----------------------------------------------------------------------------------------------------------


async def test_a_user_may_use_its_keys_and_no_others(guarded: EtcdServer) -> None:
    async with connect(guarded) as client:
        await use_all(client)
        with pytest.raises(EtcdRefused, match="permission denied"):
            await client.put("/other", b"x")


@pytest.mark.parametrize(
    ("login", "reason"),
    [(None, "user name is empty"), (EtcdLogin(user=USER, password="a guess"), "invalid user ID or password")],
)
async def test_nobody_else_may(guarded: EtcdServer, login: EtcdLogin | None, reason: str) -> None:
    async with connect(guarded, login) as client:
        with pytest.raises(EtcdRefused, match=reason) as refusal:
            await client.put("/eruca/a", b"x")
        assert "a guess" not in str(refusal.value)


async def restart(etcd: EtcdServer) -> None:
    await etcd.stop()
    await etcd.start()


async def change_users(etcd: EtcdServer) -> None:
    """Change anything about users: etcd then refuses all tokens made before."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        login = {"name": "root", "password": "root"}
        token = (await client.post(f"{etcd.endpoint}/v3/auth/authenticate", json=login)).json()["token"]
        added = {"name": "another", "password": "x"}
        answer = await client.post(f"{etcd.endpoint}/v3/auth/user/add", json=added, headers={"Authorization": token})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("event", [restart, change_users])
async def test_a_forgotten_token_is_renewed(guarded: EtcdServer, event: Callable[[EtcdServer], Any]) -> None:
    async with connect(guarded) as client:
        await client.put("/eruca/a", b"1")
        await event(guarded)
        # Many at once, which all have the old token.
        await asyncio.gather(*[client.put(f"/eruca/{number}", b"2") for number in range(10)])
        assert len((await client.get_prefix("/eruca/")).items) == 11


async def test_a_watch_goes_on_after_its_token_is_forgotten(guarded: EtcdServer) -> None:
    seen: list[Change] = []

    async def watch(client: EtcdClient, revision: int) -> None:
        while len(seen) < 2:
            try:
                async for _, changes in client.watch("/eruca/", revision):
                    seen.extend(changes)
                    if len(seen) >= 2:
                        return
            except NetError:
                revision = seen[-1].revision + 1 if seen else revision

    async with connect(guarded) as client, asyncio.timeout(PATIENCE_S):
        revision = await client.put("/eruca/a", b"1")
        watching = asyncio.create_task(watch(client, revision))
        await restart(guarded)
        await client.put("/eruca/b", b"2")
        await watching
    assert [change.key for change in seen] == ["/eruca/a", "/eruca/b"]


def test_no_password_shows() -> None:
    assert PASSWORD not in repr(LOGIN)


@pytest.mark.parametrize(
    "parts", [{"user": "eruca"}, {"password": "x"}, {"key": "key.pem"}], ids=["user", "password", "key"]
)
def test_what_belongs_together_is_needed(parts: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="etcd"):
        EtcdLogin(**parts)


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Certificates of etcd, of a broker, and of somebody else."""
    for name in ("etcd", "broker", "other"):
        write_self_signed(tmp_path / f"{name}.pem", tmp_path / f"{name}.key", [f"{name}.example", "127.0.0.1"])
    trusted = (tmp_path / "etcd.pem").read_text() + (tmp_path / "broker.pem").read_text()
    (tmp_path / "trusted.pem").write_text(trusted)
    return tmp_path


def log_in(files: Path, who: str = "broker", ca: str = "etcd") -> EtcdLogin:
    pair = {"certificate": str(files / f"{who}.pem"), "key": str(files / f"{who}.key")} if who else {}
    return EtcdLogin(ca=str(files / f"{ca}.pem"), **pair)


@pytest.fixture
@starts("etcd")
async def encrypted(tmp_path: Path, files: Path) -> AsyncIterator[EtcdServer]:
    """An etcd that accepts only TLS, and only clients with a certificate."""
    login = log_in(files)
    context = make_client_context(Tls(ca=login.ca, certificate=login.certificate, key=login.key))
    own = ("--cert-file", str(files / "etcd.pem"), "--key-file", str(files / "etcd.key"))
    trust = ("--client-cert-auth", "--trusted-ca-file", str(files / "trusted.pem"))
    async with EtcdServer(tmp_path / "etcd", *own, *trust, context=context) as server:
        yield server


async def test_tls_with_certificates_on_both_sides(encrypted: EtcdServer, files: Path) -> None:
    async with connect(encrypted, log_in(files)) as client:
        await use_all(client)
        assert await client.get("/eruca/b") is None


@pytest.mark.parametrize(("who", "ca"), [("broker", "other"), ("other", "etcd"), ("", "etcd")])
async def test_a_certificate_that_is_not_trusted_is_refused(
    encrypted: EtcdServer, files: Path, who: str, ca: str
) -> None:
    async with connect(encrypted, log_in(files, who, ca)) as client:
        with pytest.raises(NetError):
            await client.put("/eruca/a", b"x")


def test_files_without_tls_are_a_mistake(files: Path) -> None:
    with pytest.raises(ConfigError, match="need TLS"):
        EtcdClient(["http://127.0.0.1:1"], login=log_in(files))


def test_a_password_without_tls_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    EtcdClient(["http://127.0.0.1:1"], login=LOGIN)
    assert not caplog.records
    EtcdClient(["http://192.0.2.1:1"], login=LOGIN)
    assert "sent without TLS" in caplog.text and PASSWORD not in caplog.text


# --- a broker -------------------------------------------------------------------------------------------------------


async def test_a_broker_is_elected_with_a_user(
    guarded: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options = BrokerOptions(
        port=find_broker_port(),
        failover="etcd",
        etcd_endpoints=guarded.endpoint,
        etcd_user=USER,
        etcd_password=PASSWORD,
        failover_lease_s=10,
    )
    small = StoreOptions(commitlog_segment_bytes=1 << 20, index_slots=500, index_entries=2000)
    broker = Broker(options, small, tmp_path / "store")
    await broker.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while broker.standing.state != MASTER or not broker.standing.writable:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    finally:
        await broker.stop()
    async with connect(guarded) as client:
        assert "/eruca/DefaultCluster/broker-a" in "".join((await client.get_prefix("/eruca/")).items)
    # A token of etcd's has 16 letters, a dot and a number.
    assert caplog.records
    assert PASSWORD not in caplog.text and not re.search(r"\b[A-Za-z]{16}\.[0-9]+\b", caplog.text)


async def test_a_broker_with_a_wrong_password_says_so(
    guarded: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = BrokerOptions(
        port=find_broker_port(),
        failover="etcd",
        etcd_endpoints=guarded.endpoint,
        etcd_user=USER,
        etcd_password="a guess",
    )
    small = StoreOptions(commitlog_segment_bytes=1 << 20, index_slots=500, index_entries=2000)
    broker = Broker(options, small, tmp_path / "store")
    await broker.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while "invalid user ID or password" not in caplog.text:  # noqa: ASYNC110 - the log tells nobody
                await asyncio.sleep(0.01)
        assert broker.standing.state != MASTER and "a guess" not in caplog.text
    finally:
        await broker.stop()
