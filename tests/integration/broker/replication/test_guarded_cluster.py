"""Brokers at a name server with accounts: who may register, who may promote, and what the logs say otherwise."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.options import BrokerRole
from eruca._client.options import ClientOptions
from eruca._filterserver.app import FilterServer
from eruca._filterserver.options import FilterServerOptions
from eruca._net.caller import Caller
from eruca._net.certificates import write_self_signed
from eruca._net.tlsoptions import ClientAuth, TlsOptions
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import RegisterBrokerHeader
from eruca._wire.names import MASTER, SLAVE
from eruca._wire.signature import Credentials
from eruca.admin import Admin
from eruca.errors import ErucaError
from tests.accounts import ADMIN, describe
from tests.integration.broker.replication.keys import MEMBERS, MakeAccess, write_members
from tests.integration.broker.replication.members import Group, read_log, tail_of, wait_for_copy, wait_until
from tests.integration.broker.requests import try_send


async def register(group: Group, credentials: Credentials | None, store: str | None = None) -> int:
    """Register a master that does not exist; return the response code."""
    caller = Caller(credentials=credentials)
    try:
        header = RegisterBrokerHeader("broker-a", "127.0.0.1:1", "DefaultCluster", "127.0.0.1:2", 0, eruca_epoch=9000)
        header.eruca_store = store
        command = make_request(RequestCode.REGISTER_BROKER, header)
        return (await caller.call(group.nameserver.address, command, 60_000)).code
    finally:
        await caller.close()


async def test_a_broker_with_its_account_registers_and_leaves(guarded: Group, make_access: MakeAccess) -> None:
    master = await guarded.add(0, access=make_access())
    assert guarded.route() == {0: master.standing.address}
    await guarded.remove(master)
    assert guarded.route() == {}


@pytest.mark.parametrize("keys", ["none", "wrong secret", "not a broker"])
async def test_a_broker_without_it_is_refused_and_says_so_now_and_then(
    guarded: Group, make_access: MakeAccess, keys: str, caplog: pytest.LogCaptureFixture
) -> None:
    master = await guarded.add(0, access=make_access(keys))
    for _ in range(5):
        await master.registration.register_all()
    assert guarded.route() == {}
    lines = [record.getMessage() for record in caplog.records if "rejected the registration" in record.getMessage()]
    assert len(lines) == 1
    assert "AclException" in lines[0] and "brokerAccessKey and brokerSecretKey" in lines[0]
    # It works for those who know its address.
    assert (await try_send(guarded.connect(master, ADMIN))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("credentials", [None, Credentials("members", "a guess"), ADMIN])
async def test_a_stranger_does_not_get_the_name(
    guarded: Group, make_access: MakeAccess, credentials: Credentials | None
) -> None:
    master = await guarded.add(0, access=make_access())
    store = master.store.lineage.store_id
    assert await register(guarded, credentials, store) != ResponseCode.SUCCESS
    assert guarded.route() == {0: master.standing.address}
    # The same with the account of the brokers: the frame itself is right.
    assert await register(guarded, MEMBERS, store) == ResponseCode.SUCCESS


async def promote(group: Group, address: str, credentials: Credentials | None) -> None:
    options = ClientOptions(
        nameservers=group.nameserver.address,
        access_key=credentials.access_key if credentials else "",
        secret_key=credentials.secret_key if credentials else "",
        instance=f"operator {credentials}",
    )
    async with Admin(options=options) as admin:
        await admin.cluster.promote(address)


async def test_an_operator_promotes_with_an_admin_account(guarded: Group, make_access: MakeAccess) -> None:
    master = await guarded.add(0, BrokerRole.SYNC_MASTER, access=make_access())
    slave = await guarded.add(1, access=make_access())
    await wait_until(master.replication.server.list_slaves)
    await guarded.connect(master, ADMIN).send("T")
    for nobody in (None, MEMBERS):
        with pytest.raises(ErucaError, match="AclException"):
            await promote(guarded, slave.standing.address, nobody)
    assert (master.standing.state, slave.standing.state) == (MASTER, SLAVE)
    await promote(guarded, slave.standing.address, ADMIN)
    assert (master.standing.state, slave.standing.state) == (SLAVE, MASTER)
    await wait_until(slave.replication.server.list_slaves)
    assert (await try_send(guarded.connect(slave, ADMIN))).code == ResponseCode.SUCCESS
    await wait_for_copy(master, slave)
    assert read_log(master) == read_log(slave)
    assert [link.account for link in slave.replication.server.links] == ["members"]
    await wait_until(lambda: guarded.route().get(0) == slave.standing.address, "clients find the new master")


async def test_a_filter_server_registers_with_its_account(guarded: Group, make_access: MakeAccess) -> None:
    broker = await guarded.add(0, access=make_access(), filter_servers_max=1)
    for keys, count in (("none", 0), ("right", 1)):
        server = FilterServer(FilterServerOptions(broker=broker.standing.address), access=make_access(keys))
        await server.start()
        try:
            assert len(broker.filter_servers.list_addresses()) == count
        finally:
            await server.stop()


# --- certificates ---------------------------------------------------------------------------------------------------

NAMES = ("names", "one", "two", "other")


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, TlsOptions]:
    """TLS of servers that trust each other's certificates."""
    for name in NAMES:
        write_self_signed(tmp_path / f"{name}.pem", tmp_path / f"{name}.key", [f"{name}.example", "127.0.0.1"])
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("".join((tmp_path / f"{name}.pem").read_text() for name in NAMES))

    def make(name: str) -> TlsOptions:
        certificate, key = str(tmp_path / f"{name}.pem"), str(tmp_path / f"{name}.key")
        return TlsOptions(
            certificate=certificate,
            key=key,
            client_auth=ClientAuth.OPTIONAL,
            trust=str(trusted),
            outgoing=True,
            outgoing_trust=str(trusted),
            outgoing_certificate=certificate,
            outgoing_key=key,
        )

    return {name: make(name) for name in NAMES}


@pytest.fixture
def certified(tmp_path: Path, certificates: dict[str, TlsOptions]) -> MakeAccess:
    """Accounts for which the certificates of two brokers stand."""

    def bind(name: str) -> dict[str, Any]:
        text = Path(certificates[name].certificate).read_text()
        mark = hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()
        return describe(Credentials(f"broker-{name}", f"secret of {name}"), broker=True, certificate=mark)

    return write_members(tmp_path / "plain_acl.yml", bind("one"), bind("two"))


@pytest.mark.parametrize(("who", "is_member"), [("two", True), ("other", False)])
async def test_a_certificate_stands_for_an_account(
    tmp_path: Path,
    certificates: dict[str, TlsOptions],
    certified: MakeAccess,
    who: str,
    is_member: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group(tmp_path, certified("none"), certificates["names"])
    await group.start()
    try:
        master = await group.add(0, BrokerRole.SYNC_MASTER, access=certified("none"), tls=certificates["one"])
        assert group.route() == {0: master.standing.address}
        assert (await try_send(group.connect(master, ADMIN))).code == ResponseCode.SLAVE_NOT_AVAILABLE
        slave = await group.add(
            1, access=certified("none"), tls=certificates[who], ha_master=master.standing.ha_address
        )
        if is_member:
            await wait_for_copy(slave, master)
            await wait_until(master.replication.server.list_slaves)
            assert [link.account for link in master.replication.server.links] == ["broker-two"]
            assert (await try_send(group.connect(master, ADMIN))).code == ResponseCode.SUCCESS
        else:
            await wait_until(lambda: "No accessKey is configured" in caplog.text)
            assert tail_of(slave) == 0 and master.replication.server.list_slaves() == []
            assert (await try_send(group.connect(master, ADMIN))).code == ResponseCode.SLAVE_NOT_AVAILABLE
    finally:
        await group.stop()
