"""Members of consumer groups in separate processes: what each owns, what it was given, and how it ends.

A member is a program that takes JSON lines and writes what its handlers do to a file, one line a write, so that a
killed process leaves behind all it did. Times are those of `CLOCK_MONOTONIC`, which all processes of a machine share
(`time.monotonic_ns()` here, `System.nanoTime()` in Java); each member shows at its start that its clock is ours.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from eruca._wire.bodies import MessageQueue
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.interop.javapeer import JavaProgram, Peer
from tests.patience import PATIENCE_S

# Room for eight queues of cached messages and for the client itself.
HEAP = "128m"
POLL_SECONDS = 0.02

# Who owns a queue, by the name of the member.
Owners = Mapping[MessageQueue, str]


@dataclass(frozen=True)
class MemberSettings:
    """What a member does. The times are shorter than a user's, in the same order: renew < rely < the broker's lock."""

    name_server: str
    group: str
    topic: str
    # `average`, `circle`, `consistent-hash`, `machine-room ROOM...` or `config BROKER NUMBER...`.
    strategy: str = "average"
    ordered: bool = False
    # Ours only: a queue goes to another member when its handlers have ended.
    exclusive: bool = False
    # How long a handler works on a message.
    work_ms: int = 0
    threads: int = 4
    # Messages of a queue that wait for a handler.
    cached_max: int = 100
    heartbeat_ms: int = 1000
    persist_ms: int = 200
    rebalance_ms: int = 500
    lock_renew_ms: int = 1000
    lock_rely_ms: int = 2000


@dataclass(slots=True)
class Delivery:
    """One message given to one handler. `done_ns` is missing while the handler works, and for ever if it was killed."""

    member: str
    began_ns: int
    queue: MessageQueue
    offset: int
    reconsume_times: int
    unique_id: str
    keys: str
    body: str
    done_ns: int | None = None


@dataclass(frozen=True)
class Balance:
    """A member's view: the queues it reads, those its last balance gave it, and the clients that one reckoned with.

    Between a balance and its effect the first two differ (an ordered consumer still waits for a lock, for example), and
    a member that has not heard of a change has other clients than the group has.
    """

    owned: frozenset[MessageQueue]
    allotted: frozenset[MessageQueue]
    clients: tuple[str, ...]


class Member(Protocol):
    """A push consumer in a separate process, whatever it is written in."""

    @property
    def name(self) -> str:
        """What tests call it; no two members of a history have the same."""

    @property
    def client_id(self) -> str:
        """What the broker calls it."""

    def balance(self) -> Balance:
        """What it owns now and what its last balance said."""

    def queues(self) -> frozenset[MessageQueue]:
        """The queues it owns now, without those of the retry topic."""

    def consumed(self) -> Sequence[Delivery]:
        """All it was given so far, in the order in which handlers began; also when it has ended."""

    def stop(self) -> None:
        """End it cleanly: what it has is consumed and committed, and the broker knows that it is gone."""

    def kill(self) -> None:
        """End it without a word."""


class RecordFile:
    """The file in which a member writes what its handlers do; it is read on from where the last reading ended.

    `["+", number, clock, topic, broker, queue, offset, reconsume times, unique id, keys, body]` when a handler begins
    and `["-", number, clock]` when it is done, one JSON array a line.
    """

    def __init__(self, path: Path, member: str) -> None:
        self.path = path
        self._member = member
        self._read_to = 0
        self._deliveries: list[Delivery] = []
        self._by_number: dict[int, Delivery] = {}

    def read(self) -> list[Delivery]:
        """All deliveries so far. A line without an end, as a kill may leave one, did not happen."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self._read_to)
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self._read_to += whole
        for line in text[:whole].splitlines():
            self._take(json.loads(line))
        self._deliveries.sort(key=lambda delivery: delivery.began_ns)
        return list(self._deliveries)

    def _take(self, fields: list[Any]) -> None:
        if fields[0] == "-":
            self._by_number.pop(fields[1]).done_ns = fields[2]
            return
        number, began, topic, broker, queue, offset, times, unique, keys, body = fields[1:]
        delivery = Delivery(
            member=self._member,
            began_ns=began,
            queue=MessageQueue(broker_name=broker, queue_id=queue, topic=topic),
            offset=offset,
            reconsume_times=times,
            unique_id=unique,
            keys=keys or "",
            body=body,
        )
        self._deliveries.append(delivery)
        self._by_number[number] = delivery


class ProgramMember:
    """A member that is driven by lines; it is running when this returns, though the group may not know it yet."""

    def __init__(self, program: JavaProgram, home: Path, name: str, settings: MemberSettings) -> None:
        self._program = program
        self._records = RecordFile(home / f"{name}.records", name)
        self._name = name
        before = time.monotonic_ns()
        try:
            (told,) = program.ask(self._describe_start(settings))
            after = time.monotonic_ns()
            assert before <= told["clock"] <= after, f"{name} reads another clock: {before} {told['clock']} {after}"
        except BaseException:
            self.kill()
            raise
        self._client_id: str = told["clientId"]

    def _describe_start(self, settings: MemberSettings) -> dict[str, Any]:
        return {
            "do": "start",
            "member": self._name,
            "records": str(self._records.path),
            "nameServer": settings.name_server,
            "group": settings.group,
            "topic": settings.topic,
            "strategy": settings.strategy,
            "ordered": settings.ordered,
            "exclusive": settings.exclusive,
            "workMs": settings.work_ms,
            "threads": settings.threads,
            "cachedMax": settings.cached_max,
            "heartbeatMs": settings.heartbeat_ms,
            "persistMs": settings.persist_ms,
        }

    @property
    def name(self) -> str:
        """What tests call it."""
        return self._name

    @property
    def client_id(self) -> str:
        """What the broker calls it."""
        return self._client_id

    def balance(self) -> Balance:
        """What it owns now and what its last balance said."""
        (row,) = self._program.ask({"do": "balance"})
        return Balance(read_queues(row["owned"]), read_queues(row["allotted"]), tuple(row["clients"]))

    def queues(self) -> frozenset[MessageQueue]:
        """The queues it owns now, without those of the retry topic."""
        return self.balance().owned

    def consumed(self) -> Sequence[Delivery]:
        """All it was given so far, in the order in which handlers began; also when it has ended."""
        return self._records.read()

    def stop(self) -> None:
        """End it cleanly: what it has is consumed and committed, and the broker knows that it is gone."""
        self._program.ask({"do": "stop"})
        self._program.end(signal.SIGKILL)

    def kill(self) -> None:
        """End it without a word. Safe to call again."""
        self._program.end(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def read_queues(rows: Iterable[Sequence[Any]]) -> frozenset[MessageQueue]:
    """Queues as programs tell them: topic, broker, number."""
    return frozenset(MessageQueue(broker_name=broker, queue_id=number, topic=topic) for topic, broker, number in rows)


class JavaMember(ProgramMember):
    """A push consumer of the official client, in a separate Java process."""

    def __init__(self, peer: Peer, home: Path, name: str, settings: MemberSettings) -> None:
        times = (settings.rebalance_ms, settings.lock_renew_ms, settings.lock_rely_ms)
        place = home / name
        program = JavaProgram(peer, "eruca.interop.GroupMember", place, *map(str, times), heap=HEAP)
        super().__init__(program, place, name, settings)


class JavaFeed:
    """A producer of the official client that sends `k0:0`, `k1:0`, ... `k0:1`, ...: a key always to the same queue."""

    def __init__(self, peer: Peer, home: Path, cluster: Cluster, broker_name: str = BROKER_NAME) -> None:
        self._program = JavaProgram(peer, "eruca.interop.GroupFeed", home, heap=HEAP)
        self._broker_name = broker_name
        self._where = {"nameServer": cluster.name_server, "address": cluster.broker, "broker": broker_name}

    def create_topic(self, topic: str, queues: int) -> frozenset[MessageQueue]:
        """Make a topic; returns its queues."""
        self._program.ask({"do": "createTopic", **self._where, "topic": topic, "queues": queues})
        return read_queues((topic, self._broker_name, number) for number in range(queues))

    def start(self, topic: str, queues: int, *, keys: int, per_second: int, count: int = 0) -> None:
        """Begin to send, this many messages or until `finish`."""
        request = {"topic": topic, "queues": queues, "keys": keys, "perSecond": per_second, "count": count}
        self._program.ask({"do": "load", **self._where, **request})

    def finish(self, seconds: float = PATIENCE_S) -> list[str]:
        """Wait for the last message, or stop what has no end; returns the bodies the broker has taken."""
        (counts,) = self._program.ask({"do": "finish"}, seconds)
        return [f"{key}:{number}" for key, count in counts.items() for number in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.end(signal.SIGKILL)


# --- who owns what ----------------------------------------------------------------------------------------------


def wait_for_owners(
    members: Sequence[Member], expected_queues: Iterable[MessageQueue], seconds: float
) -> dict[MessageQueue, str]:
    """Wait until the group is at rest with exactly one owner for each queue; returns the owners.

    At rest means that every member reckons with exactly these members and reads just what its balance gave it. That is
    more than one owner for each queue, which also holds in the moment before a newcomer is heard of.
    """
    expected = frozenset(expected_queues)
    client_ids = {member.name: member.client_id for member in members}
    for _ in poll(seconds):
        balances = {member.name: member.balance() for member in members}
        faults = find_faults(balances, client_ids, expected)
        if not faults:
            return {queue: name for name, balance in balances.items() for queue in balance.owned}
    shares = [f"{name} owns {_list_queues(balance.owned)}" for name, balance in sorted(balances.items())]
    raise AssertionError("\n".join([f"not at rest after {seconds} s:", *faults, *shares]))


def poll(seconds: float) -> Iterator[None]:
    """Let a loop look again until the time is over, at least once; a look that takes long is taken less often."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        began = time.monotonic()
        yield
        now = time.monotonic()
        if now > deadline:
            return
        pause.wait(max(POLL_SECONDS, 4 * (now - began)))


def find_faults(
    balances: Mapping[str, Balance], client_ids: Mapping[str, str], expected: frozenset[MessageQueue]
) -> list[str]:
    """Why a group is not at rest with one owner for each queue; nothing if it is. All are by the member's name."""
    owners: dict[MessageQueue, list[str]] = defaultdict(list)
    faults = []
    clients = sorted(client_ids.values())
    for name, balance in balances.items():
        for queue in balance.owned:
            owners[queue].append(name)
        if sorted(balance.clients) != clients:
            faults.append(f"{name} has balanced among {sorted(balance.clients)}, the group is {clients}")
        if balance.owned != balance.allotted:
            faults.append(f"{name} was given {_list_queues(balance.allotted)}")
    for queue in sorted(expected | owners.keys()):
        wanted = 1 if queue in expected else 0
        if len(owners[queue]) != wanted:
            faults.append(f"{_list_queues([queue])} has {len(owners[queue])} owners, not {wanted}: {owners[queue]}")
    return faults


def _list_queues(queues: Iterable[MessageQueue]) -> str:
    return " ".join(f"{queue.topic}/{queue.broker_name}/{queue.queue_id}" for queue in sorted(queues)) or "nothing"
