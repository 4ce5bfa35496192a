"""A broker as one of several members of its name: copying, acknowledging by copies, and deciding who leads.

All parts are built here, bottom-up. The rest of the broker uses two things: `Acknowledgement`, which is built earlier
because every send needs it, and the methods of this class.
"""

from __future__ import annotations

from functools import partial

from eruca._broker.options import LiveOptions
from eruca._broker.registering.registration import Registration
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.replication.agreeing import Agreement
from eruca._broker.replication.asking import MemberCaller
from eruca._broker.replication.claims import Claims
from eruca._broker.replication.copies import BrokerCopies
from eruca._broker.replication.failover import FailoverDriver
from eruca._broker.replication.forgetting import ForgetHandlers
from eruca._broker.replication.masteraddress import MasterAddress
from eruca._broker.replication.members import KnownMembers, MembersTable, open_members
from eruca._broker.replication.membership import Membership
from eruca._broker.replication.metadata import Metadata
from eruca._broker.replication.meters import ReplicationMeter
from eruca._broker.replication.primary import ReplicationServer
from eruca._broker.replication.replica import Follower
from eruca._broker.replication.roles import Roles
from eruca._broker.replication.services import Services
from eruca._broker.replication.state import RoleHandlers, StateHandlers
from eruca._broker.replication.tables import CopiedTables
from eruca._broker.standing import Standing
from eruca._ground.clock import Clock
from eruca._net.caller import Caller
from eruca._net.etcd import EtcdClient
from eruca._net.handlers import Handlers
from eruca._net.tls import OutgoingTls, ServerTls
from eruca._store.flush import GroupCommit
from eruca._store.messagestore import MessageStore
from eruca._store.tables.saving import TableSaver
from eruca._wire.bodies import ReplicationState


class Replication:
    """The relation of one broker to the other members of its name."""

    def __init__(
        self,
        options: LiveOptions,
        standing: Standing,
        clock: Clock,
        store: MessageStore,
        group_commit: GroupCommit,
        saver: TableSaver,
        caller: Caller,
        acknowledgement: Acknowledgement,
        registration: Registration,
        services: Services,
        tables: CopiedTables,
        known: MembersTable,
        membership: Membership,
        etcd: EtcdClient | None,
        *,
        port_tls: ServerTls | None = None,
        outgoing_tls: OutgoingTls | None = None,
    ) -> None:
        """`services` and `tables` are what a role change starts, stops and copies; `known` are the members the store
        has met before, `membership` how they authenticate; with `etcd` the members elect their master.
        """
        given, reads = options.now, acknowledgement.reads
        #: The known members.
        self.members = members = KnownMembers(options, standing, known, reads.snapshot)
        saver.add("members", open_members(store.disk, store.paths.config), members.snapshot)
        members.changed.listen(partial(saver.mark, "members"))
        asking = MemberCaller(caller, membership)
        claims = Claims(given, standing, store, members, registration.nameservers, asking)
        #: The address of the master, and what is copied from it: the log, and the tables.
        self.master = master = MasterAddress(given, standing)
        agreement = Agreement(given, standing, store, asking, membership)
        self.follower = follower = Follower(
            options, standing, store, group_commit, reads, agreement, master.find, outgoing_tls
        )
        self.metadata = metadata = Metadata(given, standing, store, tables, members, asking, master.find)
        #: Sends the log to slaves.
        self.server = server = ReplicationServer(options, standing, clock, store, acknowledgement, membership, port_tls)
        #: The role of this broker.
        self.roles = roles = Roles(
            given,
            standing,
            store,
            acknowledgement,
            registration,
            services,
            members,
            claims,
            master,
            server,
            follower,
            metadata,
        )
        #: Takes part in the election; None where an operator decides.
        self.failover: FailoverDriver | None = None
        if etcd is not None and acknowledgement.gate is not None:
            copies = BrokerCopies(options, standing, store, acknowledgement, server, members)
            self.failover = FailoverDriver(given, standing, clock, roles, copies, etcd, acknowledgement.gate)
        #: Reports the replication state.
        self.state = state = StateHandlers(
            options,
            standing,
            store,
            acknowledgement,
            tables,
            members,
            claims,
            master,
            server,
            follower,
            roles,
            membership,
        )
        forgetting = ForgetHandlers(standing, members, server, master, saver, state)
        changes = RoleHandlers(given, standing, store, asking, claims, roles, self.failover, state.describe)
        #: Handles requests of other brokers and tools.
        self.handlers: tuple[Handlers, ...] = (state, changes, forgetting)
        self._reads = reads
        self._meter = ReplicationMeter(options.now.cluster)

    # -- starting and stopping ---------------------------------------------------------------------------------------

    async def decide(self) -> None:
        """Take the role given by configuration and store. Services that store messages of their own need to know where
        their queues end, so this comes before the first message, and before the ports are open.
        """
        await self.roles.decide()

    async def open(self) -> None:
        """Listen for slaves, or start following; the ports are open by now."""
        await self.roles.open()

    async def join_election(self) -> None:
        """Take part in electing the master, where members do that."""
        if self.failover is not None:
            await self.failover.start()

    async def leave_election(self) -> None:
        """Give back a mastership that was won by election."""
        if self.failover is not None:
            await self.failover.stop()

    async def stop(self) -> None:
        """Stop everything that a role started."""
        self._meter.close()
        await self.roles.stop()

    # -- reporting ---------------------------------------------------------------------------------------------------

    def describe(self) -> ReplicationState:
        """Return the replication state of this broker."""
        return self.state.describe()

    def measure(self) -> None:
        """Update the metrics from the replication state."""
        self._meter.show(self.describe())

    def save_if_moved(self) -> None:
        """Save the read limit, where it is not simply the end of the log."""
        if self._reads.is_bounding:
            self.members.save_if_moved()
