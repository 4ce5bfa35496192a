"""Hand-written parts of the plain admin: its parts."""

from __future__ import annotations

from eruca._admin.admin import Admin as AsyncAdmin
from eruca._admin.sync.accounts import Accounts
from eruca._admin.sync.brokers import Brokers
from eruca._admin.sync.clients import Clients
from eruca._admin.sync.cluster import Cluster
from eruca._admin.sync.deadletters import DeadLetters
from eruca._admin.sync.delayed import DelayedMessages
from eruca._admin.sync.doctor import Doctor
from eruca._admin.sync.groups import Groups
from eruca._admin.sync.messages import Messages
from eruca._admin.sync.nameservers import NameServers
from eruca._admin.sync.offsets import Offsets
from eruca._admin.sync.routes import Routes
from eruca._admin.sync.topics import Topics
from eruca._admin.sync.transactions import Transactions
from eruca._client.sync.base import PlainClient


class PlainAdmin(PlainClient[AsyncAdmin]):
    """Base of the generated admin."""

    def __init__(self, twin: AsyncAdmin) -> None:
        super().__init__(twin)
        self.topics = Topics(twin.topics, self)
        self.groups = Groups(twin.groups, self)
        self.offsets = Offsets(twin.offsets, self)
        self.messages = Messages(twin.messages, self)
        self.dead_letters = DeadLetters(twin.dead_letters, self)
        self.transactions = Transactions(twin.transactions, self)
        self.delayed = DelayedMessages(twin.delayed, self)
        self.clients = Clients(twin.clients, self)
        self.brokers = Brokers(twin.brokers, self)
        self.cluster = Cluster(twin.cluster, self)
        self.nameservers = NameServers(twin.nameservers, self)
        self.accounts = Accounts(twin.accounts, self)
        self.routes = Routes(twin.routes, self)
        self.doctor = Doctor(twin.doctor, self)
