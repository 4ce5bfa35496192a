"""The picture of a cluster that the checks look at: facts of one moment, as the admin API returns them."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

import msgspec

from eruca._admin.brokers import GroupProgress, Health, ServerConfig
from eruca._admin.clients import ProducerClient
from eruca._admin.comparing import Disagreement
from eruca._admin.connections import GroupConnections
from eruca._admin.deadletters import GroupLetters
from eruca._admin.groupmembers import Difference
from eruca._admin.groups import Group
from eruca._admin.members import Lag, Member
from eruca._admin.nameservers import NameServer
from eruca._admin.queueends import QueueEnds
from eruca._admin.results import Problem
from eruca._admin.runtime import Runtime
from eruca._admin.topics import NamedSettings
from eruca._admin.transactiontable import Transaction


class Picture(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A cluster at one moment; offsets of groups with a backlog were read twice."""

    at: datetime
    health: list[Health] = []
    runtime: list[Runtime] = []
    configs: list[ServerConfig] = []
    members: list[Member] = []
    slaves: list[Lag] = []
    nameservers: list[NameServer] = []
    disagreements: list[Disagreement] = []
    topics: list[NamedSettings] = []
    connections: list[GroupConnections] = []
    producers: list[ProducerClient] = []
    # All queues with a backlog, at the first look.
    backlog: list[GroupProgress] = []
    # The groups that were looked at closely, at the second look, and how many seconds later this was.
    groups: list[Group] = []
    between: float = 0.0
    # The ends of the queues of these groups.
    ends: list[QueueEnds] = []
    # Of the groups whose members were asked for their subscriptions.
    differences: dict[str, list[Difference]] = {}
    # Queues with messages that consumers do not read.
    unreachable: list[QueueEnds] = []
    letters: list[GroupLetters] = []
    halves: list[Transaction] = []
    # Parts that could not be collected, and servers that did not answer a part.
    problems: list[Problem] = []
    left_out: list[str] = []

    @cached_property
    def own_names(self) -> set[str]:
        """The names of brokers and clusters, which are topics too."""
        return {name for row in self.health for name in (row.broker, row.cluster)}

    @cached_property
    def read_queues(self) -> dict[str, int]:
        """How many queues each topic has for reading, over all brokers."""
        found: dict[str, int] = {}
        for row in self.topics:
            found[row.topic] = found.get(row.topic, 0) + row.settings.read_queues
        return found

    @cached_property
    def connected(self) -> dict[str, GroupConnections]:
        """The groups with members, by name."""
        return {row.group: row for row in self.connections}

    @cached_property
    def lag_by_group(self) -> dict[str, int]:
        """How many messages wait for each group that has a backlog."""
        found: dict[str, int] = {}
        for row in self.backlog:
            found[row.group] = found.get(row.group, 0) + row.lag
        return found

    @cached_property
    def first_offsets(self) -> dict[tuple[str, str, str, int], int]:
        """The offsets of the first look, by group, topic, broker and queue."""
        return {(row.group, row.topic, row.broker, row.queue): row.offset for row in self.backlog}

    @cached_property
    def begins(self) -> dict[tuple[str, str, int], int]:
        """The first offset of each queue of the groups that were looked at closely, by topic, broker and queue."""
        return {(row.topic, row.broker, row.queue): row.begin for row in self.ends}

    @cached_property
    def options(self) -> dict[str, dict[str, str]]:
        """The options of each broker, by its address."""
        return {row.address: row.options for row in self.configs}
