"""Members of a broker name that only know their roles: they answer an operator, and copy nothing but numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._net.handlers import HandlerTable, Reply, Request, refuse_unknown
from eruca._net.server import Server, ServerSettings
from eruca._wire.bodies import KVTable, ReplicationState
from eruca._wire.bodies.replication import DivergedTail, EpochStart, FollowedMaster, SlaveState
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ChangeRoleHeader, RegisterBrokerHeader
from eruca.errors import RequestRefused


class FakeMember:
    """One member: its state is what it says, its tail grows when it is asked."""

    def __init__(self, group: FakeGroup, number: int, *, is_java: bool = False) -> None:
        self.group = group
        self.number = number
        self.is_java = is_java
        self.role = "MASTER" if number == 0 else "SLAVE"
        self.epochs: list[tuple[int, int]] = [(1, 0)]
        self.seen = 1
        self.tail = 1000
        # How many bytes it copies whenever somebody looks; none when it is cut off from its master.
        self.speed = 10_000_000
        self.master: FakeMember | None = None
        self.connected = True
        self.diverged: list[DivergedTail] = []
        self.failover = ""
        # One that elects its master has it changed by the election.
        self.answers_changes = True
        self.asked: list[tuple[str, int]] = []
        # What happens instead of the registration as the master.
        self.register_as_master: Callable[[], None] | None = None
        # How a change is refused, by role.
        self.trouble: dict[str, Callable[[], None]] = {}
        # The roles to which it changes, but its answer is lost.
        self.silent: set[str] = set()
        self.server: Server | None = None

    @property
    def address(self) -> str:
        assert self.server is not None
        return f"127.0.0.1:{self.server.port}"

    async def start(self) -> None:
        table = HandlerTable()
        if self.is_java:
            table.add(
                RequestCode.GET_BROKER_RUNTIME_INFO,
                lambda request: Reply(body=KVTable(table={"commitLogMaxOffset": str(self.tail)})),
            )
        else:
            table.add(RequestCode.REPLICATION_STATE, lambda request: Reply(body=self.describe()))
            table.add(RequestCode.CHANGE_ROLE, self.change)
        self.server = Server(table.handlers, refuse_unknown, ServerSettings("127.0.0.1", 0))
        await self.server.start()
        self.known_address = self.address

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None

    def register(self) -> None:
        """As its role is: the master has the id 0; one that is fenced keeps quiet."""
        if self.role == "FENCED":
            return
        if self.role == "MASTER" and self.register_as_master is not None:
            self.register_as_master()
            return
        is_master = self.role == "MASTER"
        number = 0 if is_master else self.number or self.group.find_master_number()
        epoch = None if self.is_java or not is_master else self.seen
        header = RegisterBrokerHeader("a", self.known_address, "C", "", number, eruca_epoch=epoch)
        self.group.nameserver.routes.register(header, None, self, 0.0)

    def copy(self) -> None:
        master = self.master
        if self.role == "SLAVE" and self.is_following and master is not None:
            self.tail = min(self.tail + self.speed, master.tail)

    @property
    def is_following(self) -> bool:
        return self.connected and self.master is not None and self.master.server is not None

    def describe(self) -> ReplicationState:
        self.copy()
        options = self.group
        state = ReplicationState(
            address=self.known_address,
            broker_name="a",
            broker_id=0 if self.role == "MASTER" else self.number,
            configured_id=self.number,
            role=self.role,
            writable=self.role == "MASTER",
            epoch=self.seen,
            epochs=[EpochStart(epoch=epoch, start=start) for epoch, start in self.epochs],
            tail=self.tail,
            flushed=self.tail,
            sync=options.sync,
            required=options.required,
            members=[member.known_address for member in options.members],
            diverged=self.diverged,
            failover=self.failover,
        )
        if self.role == "SLAVE":
            master = self.master
            state.master = FollowedMaster(
                address=master.known_address if master is not None else "",
                connected=self.is_following,
                epoch=self.seen,
                lag_bytes=max(0, master.tail - self.tail) if master is not None else 0,
                lag_ms=7,
                sync=options.sync,
                required=options.required,
            )
        else:
            state.slaves = [
                SlaveState(
                    address=member.known_address,
                    broker_id=member.number,
                    fenced=True,
                    in_sync=True,
                    position=member.tail,
                    lag_bytes=self.tail - member.tail,
                    lag_ms=5,
                )
                for member in options.members
                if member.master is self and member.is_following and member.role == "SLAVE"
            ]
        return state

    def change(self, request: Request) -> Reply:
        header: ChangeRoleHeader = request.header
        self.asked.append((header.role, header.epoch))
        if header.role in self.trouble:
            self.trouble[header.role]()
        if not self.answers_changes:
            return Reply(body=self.describe())
        if header.role == "MASTER":
            if header.epoch <= self.epochs[-1][0] or header.epoch < self.seen:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"epoch {header.epoch} is over")
            if header.wait_position > self.tail:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the log ends at {self.tail}")
            self.role, self.master = "MASTER", None
            self.epochs.append((header.epoch, self.tail))
        elif header.role == "SLAVE":
            self.role = "SLAVE"
            self.master = self.group.find(header.master_address)
        elif self.role != "MASTER":
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"this broker is {self.role} and no master")
        else:
            self.role = "FENCED"
        self.seen = max(self.seen, header.epoch)
        self.register()
        if header.role in self.silent:
            request.link.abort()
        return Reply(body=self.describe())


class FakeGroup:
    """A name server, a master and its slaves."""

    def __init__(self, slaves: int = 1, *, sync: bool = True, required: int = 2) -> None:
        self.sync = sync
        self.required = required
        self.nameserver = NameServer(NameServerOptions(listen_port=0))
        self.members = [FakeMember(self, number) for number in range(slaves + 1)]

    async def __aenter__(self) -> FakeGroup:
        await self.nameserver.start()
        for member in self.members:
            await member.start()
            if member.number:
                member.master = self.members[0]
        for member in self.members:
            member.register()
        return self

    async def __aexit__(self, *_: Any) -> None:
        for member in self.members:
            await member.stop()
        await self.nameserver.stop()

    async def kill(self, number: int) -> None:
        """One is gone, and name servers have noticed."""
        await self.members[number].stop()
        self.nameserver.routes.drop_link(self.members[number])

    def find(self, address: str) -> FakeMember | None:
        return next((member for member in self.members if member.known_address == address), None)

    def find_master_number(self) -> int:
        return next((member.number for member in self.members if member.role == "MASTER"), 1)

    @property
    def registered(self) -> dict[int, str]:
        return self.nameserver.routes.describe_clusters().broker_addr_table["a"].broker_addrs
