"""Which queues of a topic a consumer of a group owns: every consumer computes it independently, and all must agree.

There is no coordinator. Each consumer takes the same sorted queues and the same sorted client ids, applies the same
rule and keeps its own share. So a rule here must return exactly what Java's rule of the same name returns, oddities
included; otherwise a group of Java and Eruca consumers would read some queues twice and some never.

A topic without queues or a group without clients yields no queues. Java raises in that case and keeps what it had; a
caller that wants the same skips the allocation in such a round.
"""

from __future__ import annotations

import difflib
import hashlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError

Member = TypeVar("Member")

# Points of one client on the ring of the consistent hash; the whole group must use the same number.
VIRTUAL_NODES: Final = 10


class Strategy(Protocol):
    """A rule that divides the queues of a topic among the clients of a group."""

    @property
    def name(self) -> str:
        """Java's name of the rule; all consumers of a group use the same one."""
        ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of one client. Queues and clients are sorted; a client that is not listed gets nothing."""
        ...


class RoomResolver(Protocol):
    """Knows the machine rooms of brokers and clients."""

    def find_broker_room(self, queue: MessageQueue) -> str:
        """Return the room of the broker that has a queue."""
        ...

    def find_client_room(self, client_id: str) -> str:
        """Return the room of a client."""
        ...


# --- the order of queues and clients ----------------------------------------------------------------------------


def _order_like_java(text: str) -> bytes:
    """A key that sorts text by UTF-16 code units: there U+1F600 comes before U+FF5E, in Python after it."""
    return text.encode("utf-16-be", "surrogatepass")


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sort queues as Java does: by topic, broker name and number."""
    return sorted(
        queues, key=lambda queue: (_order_like_java(queue.topic), _order_like_java(queue.broker_name), queue.queue_id)
    )


def sort_clients(ids: Iterable[str]) -> list[str]:
    """Sort client ids as Java does. An id listed twice is kept twice: it shifts those after it in every client."""
    return sorted(ids, key=_order_like_java)


# --- the rules --------------------------------------------------------------------------------------------------


class AverageStrategy:
    """Contiguous queues for each client; the first clients get one more when the division leaves a remainder."""

    name: Final = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of one client."""
        if client_id not in clients:
            return []
        index = clients.index(client_id)
        size, rest = divmod(len(queues), len(clients))
        start = index * size + min(index, rest)
        return list(queues[start : start + size + (index < rest)])


class CircleStrategy:
    """Queues dealt out one at a time, like cards."""

    name: Final = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of one client."""
        if client_id not in clients:
            return []
        return list(queues[clients.index(client_id) :: len(clients)])


class ConfigStrategy:
    """The queues configured for this client, regardless of the topic and of other clients."""

    name: Final = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the configured queues, even for a client that is not listed."""
        return list(self._queues)


class MachineRoomStrategy:
    """Only the queues of some rooms, identified by broker names of the form `room@name`."""

    name: Final = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of one client: contiguous queues first, then one of the remainder."""
        if client_id not in clients:
            return []
        index = clients.index(client_id)
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        size, rest = divmod(len(near), len(clients))
        left_over = len(near) - rest
        return near[index * size : (index + 1) * size] + near[left_over + index : left_over + index + (index < rest)]

    def _is_near(self, broker_name: str) -> bool:
        # Java's split drops empty parts at the end, so `room@name@` has a room as well.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class NearbyRoomStrategy:
    """Queues stay in their room while it has a client; queues of rooms without clients are shared by all.

    Inside a room, and for a room without clients, another rule divides the queues.
    """

    def __init__(self, inner: Strategy, resolver: RoomResolver) -> None:
        self.name: Final = f"MACHINE_ROOM_NEARBY-{inner.name}"
        self._inner = inner
        self._resolver = resolver

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of one client: of its own room first, then of rooms without clients in their order.

        Raises ConfigError when the resolver returns no room for a queue or a client.
        """
        if client_id not in clients:
            return []
        queue_rooms = _group_by_room(queues, self._resolver.find_broker_room)
        client_rooms = _group_by_room(clients, self._resolver.find_client_room)
        own = self._resolver.find_client_room(client_id)
        allotted: list[MessageQueue] = []
        if own in queue_rooms:
            allotted += self._inner.allocate(group, client_id, queue_rooms[own], client_rooms[own])
        for room in sorted(queue_rooms.keys() - client_rooms.keys(), key=_order_like_java):
            allotted += self._inner.allocate(group, client_id, queue_rooms[room], clients)
        return allotted


def _group_by_room(members: Iterable[Member], find_room: Callable[[Member], str]) -> Mapping[str, list[Member]]:
    rooms: defaultdict[str, list[Member]] = defaultdict(list)
    for member in members:
        room = find_room(member)
        if not room:
            # A guess would disagree with the rest of the group.
            raise ConfigError(f"no machine room for {member}", hint="the resolver must return a room for each")
        rooms[room].append(member)
    return rooms


def hash_md5(key: str) -> int:
    """Hash text to the first four bytes of its MD5, its place on Java's ring."""
    # Java encodes lone surrogates as "?".
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


class ConsistentHashStrategy:
    """Queues and clients on a ring: when a client joins or leaves, few queues change owners."""

    name: Final = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES, hash: Callable[[str], int] = hash_md5) -> None:
        if virtual_nodes < 0:
            raise ConfigError(f"a client cannot have {virtual_nodes} virtual nodes")
        self._virtual_nodes = virtual_nodes
        self._hash = hash

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of one client: the queues whose next point on the ring belongs to it."""
        if client_id not in clients:
            return []
        ring = self._build_ring(clients)
        points = sorted(ring)
        if not points:
            return []

        def find_owner(queue: MessageQueue) -> str:
            key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[points[bisect_left(points, self._hash(key)) % len(points)]]

        return [queue for queue in queues if find_owner(queue) == client_id]

    def _build_ring(self, clients: Sequence[str]) -> dict[int, str]:
        """The points on the ring and their owners; if two clients share a point, the later one owns it."""
        ring: dict[int, str] = {}
        held: Counter[str] = Counter()
        for client in clients:
            # A client that is listed again continues after the points it already holds.
            first = held[client]
            for number in range(first, first + self._virtual_nodes):
                point = self._hash(f"{client}-{number}")
                if point in ring:
                    held[ring[point]] -= 1
                ring[point] = client
                held[client] += 1
        return ring


# --- by name, and what changes ----------------------------------------------------------------------------------

_KNOWN: Final[Mapping[str, Callable[[], Strategy]]] = {
    "average": AverageStrategy,
    "circle": CircleStrategy,
    "consistent-hash": ConsistentHashStrategy,
}


def find_strategy(wanted: str | Strategy) -> Strategy:
    """Return a strategy, which is created if it needs nothing but its name. Raises ConfigError with similar names."""
    if not isinstance(wanted, str):
        return wanted
    name = wanted
    if name in _KNOWN:
        return _KNOWN[name]()
    near = difflib.get_close_matches(name.lower(), _KNOWN)
    hint = f"did you mean {' or '.join(near)}?" if near else f"available: {', '.join(_KNOWN)}"
    raise ConfigError(f"there is no allocation strategy named {name!r}", hint=hint)


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a rebalance for one client, each list in the order of `sort_queues`."""

    added: list[MessageQueue]
    dropped: list[MessageQueue]


def plan_change(owned: Iterable[MessageQueue], allotted: Iterable[MessageQueue]) -> Change:
    """Compare the queues a client has with those it should have."""
    before, after = frozenset(owned), frozenset(allotted)
    return Change(sort_queues(after - before), sort_queues(before - after))
