"""A healthy cluster as the checks see it, and one fault for each name of a finding."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from eruca._admin.brokers import GroupProgress, Health, ServerConfig
from eruca._admin.clients import ProducerClient
from eruca._admin.comparing import Disagreement
from eruca._admin.connections import Connected, GroupConnections
from eruca._admin.deadletters import GroupLetters
from eruca._admin.doctor.picture import Picture
from eruca._admin.groupmembers import Difference, GroupMember, Subscribed
from eruca._admin.groupqueues import GroupQueue
from eruca._admin.groups import Group
from eruca._admin.members import Lag, Member
from eruca._admin.nameservers import NameServer
from eruca._admin.queueends import QueueEnds
from eruca._admin.results import Problem
from eruca._admin.runtime import Runtime
from eruca._admin.settings import TopicSettings
from eruca._admin.topics import NamedSettings
from eruca._admin.transactiontable import State, Transaction
from eruca._wire.bodies import ReplicationState
from eruca._wire.bodies.replication import SlaveState

AT = datetime(2026, 11, 15, 7, 0, tzinfo=UTC)
MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
QUEUES = 4
MEMBERS = ("10.0.0.7@1", "10.0.0.8@2")


def change(row: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(row, **fields)


def make_state(**fields: Any) -> ReplicationState:
    return ReplicationState(
        **{
            "address": MASTER,
            "role": "MASTER",
            "required": 2,
            "sync": True,
            "writable": True,
            "members": [MASTER, SLAVE],
            "slaves": [SlaveState(address=SLAVE, broker_id=1, in_sync=True, fenced=True)],
            **fields,
        }
    )


def make_health(address: str = MASTER, **fields: Any) -> Health:
    return Health(
        **{
            "cluster": "DefaultCluster",
            "broker": "broker-a",
            "broker_id": 0 if address == MASTER else 1,
            "address": address,
            "answers": True,
            "round_trip": timedelta(milliseconds=5),
            "version": "V4_9_7",
            "kind": "eruca",
            "log_disk_ratio": 0.4,
            "disk_free_bytes": 1 << 40,
            "clock_ahead": timedelta(milliseconds=3),
            **fields,
        }
    )


def make_queue(number: int, **fields: Any) -> GroupQueue:
    return GroupQueue(
        **{
            "topic": "orders",
            "broker": "broker-a",
            "queue": number,
            "offset": 100,
            "end": 110,
            "lag": 10,
            "lag_time": timedelta(seconds=2),
            "owner": MEMBERS[number % 2],
            **fields,
        }
    )


def make_group(queues: list[GroupQueue] | None = None, **fields: Any) -> Group:
    members = [
        GroupMember(client_id=name, address="10.0.0.7:4711", language="JAVA", version="4.9.7", brokers=["broker-a"])
        for name in MEMBERS
    ]
    whole = [make_queue(number) for number in range(QUEUES)] if queues is None else queues
    return Group(
        **{
            "name": "billing",
            "brokers": [],
            "members": members,
            "subscriptions": [Subscribed(topic="orders", expression="*")],
            "queues": whole,
            "differences": [],
            "model": "clustering",
            "kind": "push",
            "lag": sum(row.lag for row in whole),
            "rate": 12.0,
            **fields,
        }
    )


def make_backlog(group: str = "billing", **fields: Any) -> list[GroupProgress]:
    # Before the second look: it has moved on since.
    return [
        GroupProgress(
            **{
                "group": group,
                "topic": "orders",
                "broker": "broker-a",
                "queue": number,
                "offset": 90,
                "end": 110,
                "lag": 20,
                **fields,
            }
        )
        for number in range(QUEUES)
    ]


def make_connections(group: str = "billing", clients: tuple[str, ...] = MEMBERS, **fields: Any) -> GroupConnections:
    connected = [
        Connected(
            **{
                "client_id": name,
                "address": f"10.0.0.7:{4711 + number}",
                "broker": "broker-a",
                "language": "JAVA",
                "version": "4.9.7",
                **fields,
            }
        )
        for number, name in enumerate(clients)
    ]
    subscriptions = [
        Subscribed(topic="orders", expression="*"),
        Subscribed(topic=f"%RETRY%{group}", expression="*"),
    ]
    return GroupConnections(
        group=group, connections=connected, subscriptions=subscriptions, model="clustering", kind="push"
    )


def make_settings(topic: str = "orders", **fields: Any) -> NamedSettings:
    settings = TopicSettings(**{"read_queues": QUEUES, "write_queues": QUEUES, **fields})
    return NamedSettings(topic=topic, broker="broker-a", settings=settings)


def make_lag(**fields: Any) -> Lag:
    return Lag(
        **{
            "broker": "broker-a",
            "address": SLAVE,
            "broker_id": 1,
            "master": MASTER,
            "fenced": True,
            "connected": True,
            "in_sync": True,
            "position": 1000,
            "lag_bytes": 10,
            "lag_seconds": 0.01,
            "told_by": "master",
            **fields,
        }
    )


def make_half(**fields: Any) -> Transaction:
    return Transaction(
        **{
            "state": State.PREPARED,
            "message_id": "M",
            "offset_id": "O",
            "position": 0,
            "offset": 0,
            "size": 100,
            "stored_at": AT - timedelta(seconds=3),
            "born_at": AT - timedelta(seconds=3),
            "producer_group": "payments",
            "topic": "orders",
            "queue": 0,
            "checks": 0,
            **fields,
        }
    )


def make_member(address: str = MASTER, **fields: Any) -> Member:
    master = address == MASTER
    return Member(
        **{
            "cluster": "DefaultCluster",
            "broker": "broker-a",
            "broker_id": 0 if master else 1,
            "address": address,
            "role": "MASTER" if master else "SLAVE",
            "tail": 1000,
            "state": make_state() if master else make_state(role="SLAVE", address=SLAVE, slaves=[]),
            **fields,
        }
    )


def make_runtime(broker: str = "broker-a", rate: float = 100.0, **fields: Any) -> Runtime:
    return Runtime(**{"broker": broker, "address": MASTER, "raw": {}, "put_rates": [rate, rate], **fields})


def make_config(**options: str) -> ServerConfig:
    return ServerConfig(
        where="broker-a", address=MASTER, options={"fileReservedTime": "72", "brokerPermission": "6", **options}
    )


def make_server(address: str = "10.0.0.1:9876", **fields: Any) -> NameServer:
    return NameServer(**{"address": address, "answers": True, "brokers": 2, "topics": 9, **fields})


HEALTHY = Picture(
    at=AT,
    health=[make_health(), make_health(SLAVE)],
    runtime=[make_runtime()],
    configs=[make_config()],
    members=[make_member(), make_member(SLAVE)],
    slaves=[make_lag()],
    nameservers=[make_server(), make_server("10.0.0.2:9876")],
    topics=[make_settings()],
    connections=[make_connections()],
    producers=[
        ProducerClient(
            group="shop",
            client_id="10.0.0.9@1",
            address="10.0.0.9:1",
            language="CPP",
            version="3.2.6",
            broker="broker-a",
        )
    ],
    backlog=make_backlog(),
    groups=[make_group()],
    between=1.0,
    letters=[GroupLetters(group="billing", count=0)],
    halves=[make_half()],
)


def paint(**fields: Any) -> Picture:
    """Return the healthy cluster with some parts replaced."""
    return Picture(**{**msgspec.structs.asdict(HEALTHY), **fields})


_STUCK = [make_queue(number, lag_time=timedelta(minutes=5)) for number in range(QUEUES)]
#: A cluster with one fault, by the name of the finding.
FAULTS: dict[str, Picture] = {
    "no-broker": Picture(
        at=AT,
        nameservers=[make_server(brokers=0)],
        problems=[Problem(where="topics", error="no broker is registered")],
    ),
    "no-master": paint(members=[make_member(SLAVE)]),
    "broker-unreachable": paint(health=[make_health(), make_health(SLAVE, answers=False, problem="refused")]),
    "nameserver-unreachable": paint(
        nameservers=[make_server(), make_server("h:9876", answers=False, problem="refused")]
    ),
    "nameservers-disagree": paint(
        disagreements=[Disagreement(kind="topic", name="orders", known_to=["a:9876"], missing_on=["b:9876"])]
    ),
    "disk-full": paint(health=[make_health(log_disk_ratio=0.8)]),
    "insync-too-small": paint(members=[make_member(state=make_state(slaves=[])), make_member(SLAVE)]),
    "slave-disconnected": paint(slaves=[make_lag(connected=False)]),
    "slave-behind": paint(slaves=[make_lag(lag_bytes=1 << 30)]),
    "broker-not-writable": paint(configs=[make_config(brokerPermission="4")]),
    "brokers-uneven": paint(
        health=[make_health(), make_health("10.0.0.3:10911", broker="broker-b", broker_id=0)],
        runtime=[make_runtime(), make_runtime("broker-b", 2.0, address="10.0.0.3:10911")],
    ),
    "clock-apart": paint(health=[make_health(clock_ahead=timedelta(seconds=-30))]),
    "group-stuck": paint(groups=[make_group(_STUCK, rate=0.0)], backlog=make_backlog(offset=100)),
    "unread-deleted": paint(ends=[QueueEnds(topic="orders", broker="broker-a", queue=0, begin=105, end=110)]),
    "unread-expiring": paint(groups=[make_group([make_queue(0, lag_time=timedelta(hours=60))])]),
    "client-id-twice": paint(connections=[make_connections(clients=(MEMBERS[0], MEMBERS[0]))]),
    "group-differs": paint(
        differences={
            "billing": [
                Difference(topic="orders", by_member={"a": Subscribed(topic="orders", expression="A"), "b": None})
            ]
        }
    ),
    "queue-without-owner": paint(groups=[make_group([make_queue(0), make_queue(1, owner="")])]),
    "group-absent": paint(connections=[], groups=[make_group(members=[])]),
    "group-starved": paint(connections=[make_connections(clients=tuple(f"10.0.0.7@{n}" for n in range(QUEUES + 1)))]),
    "backlog-uneven": paint(backlog=[*make_backlog(lag=5)[:3], make_backlog(queue=3, lag=5000)[0]]),
    "members-uneven": paint(groups=[make_group([make_queue(n, owner=MEMBERS[n == 0]) for n in range(QUEUES)])]),
    "dead-letters-growing": paint(letters=[GroupLetters(group="billing", count=3, last_at=AT - timedelta(minutes=5))]),
    "dead-letters": paint(letters=[GroupLetters(group="billing", count=3, last_at=AT - timedelta(days=2))]),
    "halves-in-doubt": paint(halves=[make_half(stored_at=AT - timedelta(hours=1))]),
    "transactions-given-up": paint(halves=[make_half(state=State.GIVEN_UP)]),
    "messages-out-of-reach": paint(unreachable=[QueueEnds(topic="orders", broker="broker-a", queue=7, begin=2, end=5)]),
    "topic-not-writable": paint(topics=[make_settings(permission="R")]),
    "topic-not-readable": paint(topics=[make_settings(permission="W")]),
    "client-old": paint(connections=[make_connections(version="4.2.0")]),
    "not-examined": paint(problems=[Problem(where="broker-a", error="no permission")]),
}
