"""Members that authenticate each other, and all kinds of peers that cannot: none of them gets the log or is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._ground.config import FlushMode
from eruca._wire.codes import ResponseCode
from eruca._wire.handshake import HANDSHAKE_MAGIC, Challenge, Introduction, Opening, Proof, Prover, compute_proof
from eruca._wire.replication import HELLO_MAGIC, Hello, Refusal, Report, encode_fenced
from tests.accounts import ADMIN
from tests.integration.broker.replication.keys import MEMBERS, MakeAccess, write_members
from tests.integration.broker.replication.members import Group, read_log, tail_of, wait_for_copy, wait_until
from tests.integration.broker.replication.rawslave import Connect, FencedSlave, RawSlave
from tests.integration.broker.requests import try_send

NONCE = b"n" * 32
SECRET = MEMBERS.secret_key


async def make_master(group: Group, access: AccessOptions, **options: Any) -> Broker:
    """A master with some messages, which waits for a slave."""
    master = await group.add(0, BrokerRole.SYNC_MASTER, access=access, **options)
    for _ in range(5):
        assert await send(group, master) == ResponseCode.SLAVE_NOT_AVAILABLE
    return master


async def send(group: Group, master: Broker) -> int:
    return (await try_send(group.connect(master, ADMIN))).code


# --- two brokers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [True, False], ids=["accounts on", "accounts off"])
async def test_members_authenticate(
    group: Group, make_access: MakeAccess, on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    master = await make_master(group, make_access(on=on))
    slave = await group.add(1, access=make_access(on=on))
    await wait_for_copy(slave, master)
    await wait_until(master.replication.server.list_slaves)
    assert await send(group, master) == ResponseCode.SUCCESS
    assert [link.account for link in master.replication.server.links] == ["members"]
    await wait_for_copy(slave, master)
    assert read_log(slave) == read_log(master)
    await wait_until(lambda: "T" in slave.topics.snapshot().topic_config_table, "tables are copied too")
    assert "connected (fenced, account members)" in caplog.text and "(fenced, authenticated)" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("on_master", "on_slave", "reason"),
    [
        (("right", True), ("wrong secret", True), "Check signature failed for accessKey=members"),
        (("right", True), ("wrong account", True), "Check signature failed for accessKey=strangers"),
        (("right", True), ("not a broker", True), "does not prove that it is a member of broker-a"),
        (("right", True), ("none", True), "No accessKey is configured"),
        (("right", True), ("none", False), "No accessKey is configured"),
        (("none", False), ("right", True), "does not prove that it is a member of broker-a"),
        (("none", False), ("none", True), "this broker has no account (brokerAccessKey)"),
        (("wrong secret", False), ("right", True), "is not from a member of broker-a"),
    ],
)
async def test_nothing_is_copied_without_the_same_secret(
    group: Group,
    make_access: MakeAccess,
    on_master: tuple[str, bool],
    on_slave: tuple[str, bool],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = await make_master(group, make_access(on_master[0], on=on_master[1]))
    slave = await group.add(1, access=make_access(on_slave[0], on=on_slave[1]))

    def list_reasons() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        return [line for line in lines if line.startswith("cannot copy the log of the master") and reason in line]

    await wait_until(list_reasons, reason)
    assert tail_of(slave) == 0 and slave.store.lineage.store_id == ""
    assert master.replication.server.list_slaves() == []
    assert await send(group, master) == ResponseCode.SLAVE_NOT_AVAILABLE
    assert SECRET not in caplog.text


async def test_a_refusal_is_logged_once(
    group: Group, connect: Connect, make_access: MakeAccess, caplog: pytest.LogCaptureFixture
) -> None:
    master = await make_master(group, make_access())
    for _ in range(3):
        slave = await connect(master)
        slave.report(0)
        await slave.wait_until_closed()
    (line,) = [record.getMessage() for record in caplog.records if "authenticate" in record.getMessage()]
    assert "is not accepted as a slave: it does not authenticate, which this master requires (aclEnable)" in line


@pytest.mark.parametrize(("on_master", "on_slave"), [("right", "none"), ("none", "right")])
async def test_without_accounts_a_link_needs_no_keys(
    group: Group, make_access: MakeAccess, on_master: str, on_slave: str
) -> None:
    master = await make_master(group, make_access(on_master, on=False))
    slave = await group.add(1, access=make_access(on_slave, on=False))
    await wait_for_copy(slave, master)
    await wait_until(master.replication.server.list_slaves)
    assert await send(group, master) == ResponseCode.SUCCESS
    assert [link.account for link in master.replication.server.links] == [None]


async def test_where_it_is_allowed_a_slave_needs_no_account(
    group: Group, connect: Connect, make_access: MakeAccess
) -> None:
    """As a Java slave; those of its requests that are not part of the link are another matter."""
    master = await make_master(group, make_access(), ha_allow_unauthenticated=True)
    slave = await connect(master)
    slave.report(1)
    assert await slave.read_log(tail_of(master) - 1) == read_log(master)[1:]
    assert [link.account for link in master.replication.server.links] == [None]
    # One that introduces itself has to prove it nevertheless.
    other = await connect(master, FencedSlave)
    other.say(HANDSHAKE_MAGIC + encode_fenced(Introduction(NONCE, "members")) + encode_fenced(Proof(NONCE)))
    await other.wait_until_closed()
    assert isinstance(other, FencedSlave) and "authentication failed" in other.refusal


async def test_where_it_is_allowed_a_master_needs_no_account(group: Group, make_access: MakeAccess) -> None:
    master = await make_master(group, make_access("none", on=False))
    slave = await group.add(1, access=make_access(), ha_allow_unauthenticated=True)
    await wait_for_copy(slave, master)
    assert read_log(slave) == read_log(master)


async def test_members_authenticate_after_a_change_of_roles(group: Group, make_access: MakeAccess) -> None:
    master = await make_master(group, make_access())
    slave = await group.add(1, access=make_access())
    await wait_for_copy(slave, master)
    await slave.replication.roles.become_master(2000, why="the test says so")
    await master.replication.roles.become_slave(
        (slave.standing.address, slave.standing.ha_address), why="the test says so", epoch=2000
    )
    await wait_until(lambda: [link.account for link in slave.replication.server.links if link.is_joined] == ["members"])
    await group.connect(slave, ADMIN).send("T", body=b"after the change")
    await wait_for_copy(master, slave)
    assert read_log(master) == read_log(slave)


async def test_members_may_have_different_accounts(group: Group, make_access: MakeAccess) -> None:
    master = await make_master(group, make_access())
    slave = await group.add(1, access=make_access("other"))
    await wait_for_copy(slave, master)
    await wait_until(master.replication.server.list_slaves)
    assert await send(group, master) == ResponseCode.SUCCESS
    assert [link.account for link in master.replication.server.links] == ["members-2"]
    await wait_until(lambda: "T" in slave.topics.snapshot().topic_config_table, "tables are copied too")


@pytest.mark.parametrize(("on_master", "on_slave"), [(True, False), (False, True)])
async def test_accounts_are_enabled_on_one_broker_after_the_other(
    group: Group, make_access: MakeAccess, on_master: bool, on_slave: bool
) -> None:
    master = await make_master(group, make_access(on=on_master))
    slave = await group.add(1, access=make_access(on=on_slave))
    await wait_for_copy(slave, master)
    await wait_until(master.replication.server.list_slaves)
    assert await send(group, master) == ResponseCode.SUCCESS
    assert [link.account for link in master.replication.server.links] == ["members"]


async def test_an_account_that_loses_the_right_is_no_member_any_more(
    group: Group, make_access: MakeAccess, caplog: pytest.LogCaptureFixture
) -> None:
    master = await make_master(group, make_access())
    slave = await group.add(1, access=make_access())
    await wait_for_copy(slave, master)
    await asyncio.to_thread(write_members, master.access.file, broker=False)
    await master.access.reload()
    master.replication.server.drop_links("the test says so")
    await wait_until(lambda: "cannot copy the log of the master" in caplog.text)
    assert await send(group, master) == ResponseCode.SLAVE_NOT_AVAILABLE


# --- strangers ------------------------------------------------------------------------------------------------------


async def expect_nothing(group: Group, master: Broker, slave: RawSlave) -> None:
    """A stranger got no byte of the log, and does not count."""
    await slave.wait_until_closed()
    assert slave.log_chunks == []
    assert master.replication.server.links == []
    assert await send(group, master) == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_stranger_that_echoes_the_tail_is_not_counted(
    group: Group, connect: Connect, make_access: MakeAccess
) -> None:
    """The attack: read the log as a Java slave does, and report all of it."""
    master = await make_master(group, make_access(), flush_mode=FlushMode.SYNC)
    slave = await connect(master)
    slave.report(0)
    slave.report(tail_of(master))
    await expect_nothing(group, master, slave)


async def test_a_stranger_without_an_account_is_told_why(
    group: Group, connect: Connect, make_access: MakeAccess
) -> None:
    master = await make_master(group, make_access())
    slave = await connect(master, FencedSlave)
    slave.hello(master, 0)
    slave.say(encode_fenced(Report(master.replication.roles.epoch, tail_of(master))))
    await expect_nothing(group, master, slave)
    assert isinstance(slave, FencedSlave) and "authenticate" in slave.refusal


def make_hello(master: Broker) -> bytes:
    epoch, tail = master.replication.roles.epoch, tail_of(master)
    return encode_fenced(Hello(epoch, 1, 0, 0, 0, "me:1")) + encode_fenced(Report(epoch, tail))


def prove(challenge: Challenge, secret: str = "a guess", prover: Prover = Prover.SLAVE) -> bytes:
    opening = Opening("broker-a", "members", NONCE, challenge.nonce)
    return encode_fenced(Proof(compute_proof(prover, opening, secret)))


STRANGERS: dict[str, Callable[[Challenge], bytes]] = {
    "guesses": prove,
    "echoes the nonce": lambda challenge: encode_fenced(Proof(challenge.nonce)),
    "echoes the challenge": encode_fenced,
    "proves as a master": lambda challenge: prove(challenge, SECRET, Prover.MASTER),
    "does not prove": lambda challenge: b"",
    "introduces itself again": lambda challenge: encode_fenced(Introduction(challenge.nonce, "members")),
    "begins again": lambda challenge: HELLO_MAGIC,
}


@pytest.mark.parametrize("what", STRANGERS)
async def test_a_stranger_that_is_challenged_has_no_proof(
    group: Group, connect: Connect, make_access: MakeAccess, what: str
) -> None:
    master = await make_master(group, make_access())
    slave = await connect(master, FencedSlave)
    slave.say(HANDSHAKE_MAGIC + encode_fenced(Introduction(NONCE, "members")))
    while not slave.frames:
        assert await slave.read()
    (challenge,) = slave.frames
    assert isinstance(challenge, Challenge)
    slave.say(STRANGERS[what](challenge) + make_hello(master))
    await expect_nothing(group, master, slave)
    assert all(isinstance(frame, Challenge | Refusal) for frame in slave.frames)


async def test_the_right_proof_is_right(group: Group, connect: Connect, make_access: MakeAccess) -> None:
    """The stranger of the other tests, if it knew the secret."""
    master = await make_master(group, make_access())
    slave = await connect(master, FencedSlave)
    slave.say(HANDSHAKE_MAGIC + encode_fenced(Introduction(NONCE, "members")))
    while not slave.frames:
        assert await slave.read()
    (challenge,) = slave.frames
    assert isinstance(challenge, Challenge)
    slave.say(prove(challenge, SECRET) + make_hello(master)[:-25])
    assert await slave.read_log(tail_of(master)) == read_log(master)


async def test_a_connection_that_says_nothing_is_closed(
    group: Group, connect: Connect, make_access: MakeAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca._core.replication.handshake.HA_HANDSHAKE_SECONDS_MAX", 0.05)
    master = await make_master(group, make_access())
    slave = await connect(master)
    await expect_nothing(group, master, slave)


# --- recorded sessions ----------------------------------------------------------------------------------------------


@dataclass
class Tap:
    """A connection through which a slave reaches its master, and all that passed it."""

    address: str = ""
    to_master: bytearray = field(default_factory=bytearray)
    to_slave: bytearray = field(default_factory=bytearray)


@asynccontextmanager
async def tap(target: Callable[[], tuple[str, int]]) -> AsyncIterator[Tap]:
    """Forward connections, and record what is sent."""
    record, tasks = Tap(), set[asyncio.Task[None]]()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, into: bytearray) -> None:
        try:
            while data := await reader.read(1 << 16):
                into += data
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*target())
        for way in (copy(reader, back, record.to_master), copy(there, writer, record.to_slave)):
            tasks.add(asyncio.create_task(way))

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    record.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield record
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def record_session(group: Group, master: Broker, access: AccessOptions) -> Tap:
    """Let a slave copy the log through a tap, and stop it."""
    async with tap(lambda: ("127.0.0.1", master.standing.port + 1)) as record:
        slave = await group.add(1, access=access, ha_master=record.address)
        await wait_for_copy(slave, master)
        await wait_until(master.replication.server.list_slaves)
        await group.remove(slave)
    await wait_until(lambda: not master.replication.server.links)
    return record


async def test_a_recorded_slave_does_not_get_in(group: Group, connect: Connect, make_access: MakeAccess) -> None:
    master = await make_master(group, make_access())
    record = await record_session(group, master, make_access())
    assert bytes(record.to_master).startswith(HANDSHAKE_MAGIC)
    assert SECRET.encode() not in record.to_master + record.to_slave
    slave = await connect(master, FencedSlave)
    slave.say(bytes(record.to_master))
    await expect_nothing(group, master, slave)
    assert isinstance(slave, FencedSlave) and "authentication failed" in slave.refusal


async def test_a_recorded_master_is_not_followed(
    group: Group, make_access: MakeAccess, caplog: pytest.LogCaptureFixture
) -> None:
    master = await make_master(group, make_access())
    record = await record_session(group, master, make_access())

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(record.to_slave))
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        slave = await group.add(2, access=make_access(), ha_master=address)
        await wait_until(lambda: "authentication with the master failed" in caplog.text)
        assert "could not prove that it knows the secret" in caplog.text
        assert tail_of(slave) == 0
        await group.remove(slave)
    finally:
        server.close()
        await server.wait_closed()
