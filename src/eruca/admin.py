"""Operate a running cluster from Python: everything the commands do.

>>> async with Admin("127.0.0.1:9876") as admin:
...     print(await admin.offsets.show("billing"))
"""

from __future__ import annotations

from eruca._admin.accounts import Account, Accounts, AccountVersion, WhiteAddresses
from eruca._admin.admin import Admin
from eruca._admin.brokers import Brokers, GroupProgress, Health, ServerConfig
from eruca._admin.clients import ClientOffset, Clients, HeldQueue, ProducerClient, RunningInfo, TopicPace
from eruca._admin.cluster import Cluster, ClusterRow
from eruca._admin.comparing import Disagreement
from eruca._admin.connections import Connected, GroupConnections
from eruca._admin.deadletters import DeadLetters, GroupLetters, Journal, Resent, Wanted
from eruca._admin.delayed import Cancelled, Delayed, DelayedMessages, LevelProgress
from eruca._admin.doctor.doctor import Doctor
from eruca._admin.doctor.findings import Examination, Fact, Finding, Limits, Rules, Severity
from eruca._admin.groupmembers import Difference, GroupMember, Subscribed
from eruca._admin.groupqueues import GroupQueue
from eruca._admin.groups import Group, GroupName, GroupOnBroker, Groups, NamedGroupSettings, TimeSpan
from eruca._admin.lag import GroupLag, QueueLag, sum_lag
from eruca._admin.members import DivergedRow, Lag, Member
from eruca._admin.messages import Consumed, Messages, QueueRow, QueueRows
from eruca._admin.moving import Move, Moved
from eruca._admin.nameservers import KeyValue, NameServer, NameServers
from eruca._admin.offsets import Offsets
from eruca._admin.progress import Progress, QueueProgress
from eruca._admin.queueends import QueueEnds
from eruca._admin.rates import Rate
from eruca._admin.results import Change, Changed, Listed, Problem, Undo
from eruca._admin.rolechanges import Promotion
from eruca._admin.routes import RouteBroker, Routes, ServerRoute, TopicRoute
from eruca._admin.runtime import Runtime
from eruca._admin.savedoffsets import SavedOffset, SavedOffsets
from eruca._admin.settings import GroupSettings, TopicSettings
from eruca._admin.storedmessages import StoredMessage
from eruca._admin.targets import BrokerRow
from eruca._admin.topics import NamedSettings, Topic, TopicKind, TopicName, TopicOnBroker, Topics, TopicTraffic
from eruca._admin.tracing import TraceRow, Track
from eruca._admin.transactions import Deed, Transactions
from eruca._admin.transactiontable import UNDECIDED, State, Transaction
from eruca._admin.waiting import MessageHead
from eruca._wire.bodies.replication import ReplicationState

__all__ = [
    "UNDECIDED",
    "Account",
    "AccountVersion",
    "Accounts",
    "Admin",
    "BrokerRow",
    "Brokers",
    "Cancelled",
    "Change",
    "Changed",
    "ClientOffset",
    "Clients",
    "Cluster",
    "ClusterRow",
    "Connected",
    "Consumed",
    "DeadLetters",
    "Deed",
    "Delayed",
    "DelayedMessages",
    "Difference",
    "Disagreement",
    "DivergedRow",
    "Doctor",
    "Examination",
    "Fact",
    "Finding",
    "Group",
    "GroupConnections",
    "GroupLag",
    "GroupLetters",
    "GroupMember",
    "GroupName",
    "GroupOnBroker",
    "GroupProgress",
    "GroupQueue",
    "GroupSettings",
    "Groups",
    "Health",
    "HeldQueue",
    "Journal",
    "KeyValue",
    "Lag",
    "LevelProgress",
    "Limits",
    "Listed",
    "Member",
    "MessageHead",
    "Messages",
    "Move",
    "Moved",
    "NameServer",
    "NameServers",
    "NamedGroupSettings",
    "NamedSettings",
    "Offsets",
    "Problem",
    "ProducerClient",
    "Progress",
    "Promotion",
    "QueueEnds",
    "QueueLag",
    "QueueProgress",
    "QueueRow",
    "QueueRows",
    "Rate",
    "ReplicationState",
    "Resent",
    "RouteBroker",
    "Routes",
    "Rules",
    "RunningInfo",
    "Runtime",
    "SavedOffset",
    "SavedOffsets",
    "ServerConfig",
    "ServerRoute",
    "Severity",
    "State",
    "StoredMessage",
    "Subscribed",
    "TimeSpan",
    "Topic",
    "TopicKind",
    "TopicName",
    "TopicOnBroker",
    "TopicPace",
    "TopicRoute",
    "TopicSettings",
    "TopicTraffic",
    "Topics",
    "TraceRow",
    "Track",
    "Transaction",
    "Transactions",
    "Undo",
    "Wanted",
    "WhiteAddresses",
    "sum_lag",
]
