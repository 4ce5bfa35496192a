"""The admin API: one object with a part for each subject."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from eruca._admin.accounts import Accounts
from eruca._admin.brokers import Brokers
from eruca._admin.clients import Clients
from eruca._admin.cluster import Cluster
from eruca._admin.connection import Connection
from eruca._admin.deadletters import DeadLetters
from eruca._admin.delayed import DelayedMessages
from eruca._admin.doctor.doctor import Doctor
from eruca._admin.groups import Groups
from eruca._admin.messages import Messages
from eruca._admin.nameservers import NameServers
from eruca._admin.offsets import Offsets
from eruca._admin.routes import Routes
from eruca._admin.topics import Topics
from eruca._admin.transactions import Transactions
from eruca._client.options import ClientOptions


class Admin:
    """Operates a cluster of Eruca or Java brokers.

    >>> async with Admin("127.0.0.1:9876") as admin:
    ...     group = await admin.groups.show("billing")
    ...     print(group.lag, [member.client_id for member in group.members])

    Each subject is a part: `topics`, `groups`, `offsets`, `messages`, `dead_letters`, `transactions`, `delayed`,
    `clients`, `brokers`, `cluster`, `nameservers`, `accounts`, `routes`, `doctor`. A list has a limit, and is `cut` if
    there is more. A server that does not answer is among the `problems` of a result and does not hide the others.
    Whatever changes or destroys something has `dry_run`, and returns what was before and after, and how to undo it.

    It does not join a group, so brokers do not count it as a client. Names of topics and groups are those that brokers
    use, with the namespace if there is one.
    """

    def __init__(self, nameservers: str | Sequence[str] | None = None, options: ClientOptions | None = None) -> None:
        #: Sends the requests of all parts; for requests that no part has.
        self.connection = connection = Connection(nameservers, options)
        self.topics = Topics(connection)
        self.groups = Groups(connection)
        self.offsets = Offsets(connection)
        self.messages = Messages(connection)
        self.dead_letters = DeadLetters(connection)
        self.transactions = Transactions(connection)
        self.delayed = DelayedMessages(connection)
        self.clients = Clients(connection)
        self.brokers = Brokers(connection)
        self.cluster = Cluster(connection)
        self.nameservers = NameServers(connection)
        self.accounts = Accounts(connection)
        self.routes = Routes(connection)
        self.doctor = Doctor(self)

    @property
    def options(self) -> ClientOptions:
        """The options of its session."""
        return self.connection.options

    async def start(self) -> None:
        """Start; `async with` does this. No connection is made yet."""
        self.connection.open()

    async def close(self) -> None:
        """Close its connections, unless other clients use them too. Safe to call twice."""
        await self.connection.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
