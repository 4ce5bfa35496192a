"""Who owns which queue: the results of Java, and properties that hold for any queues and clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._core.allocation import (
    AverageStrategy,
    Change,
    CircleStrategy,
    ConfigStrategy,
    ConsistentHashStrategy,
    MachineRoomStrategy,
    NearbyRoomStrategy,
    Strategy,
    find_strategy,
    hash_md5,
    plan_change,
    sort_clients,
    sort_queues,
)
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError

GROUP = "GroupA"
DIVIDING: list[Strategy] = [AverageStrategy(), CircleStrategy(), ConsistentHashStrategy()]
ALL: list[Strategy] = [*DIVIDING, MachineRoomStrategy({"r1", "a"})]

# U+1F600 is two units from U+D800 on in UTF-16, which is below U+FF5E there and above it as a code point.
GRIN, WAVE = "\U0001f600", "\uff5e"

names = st.text(st.sampled_from(["a", "b", "-", "@", "0", "1", "中", GRIN, WAVE]), min_size=1, max_size=4)
queue_lists = st.lists(st.builds(MessageQueue, names, st.integers(0, 20), names), unique=True, max_size=30)
client_lists = st.lists(names, min_size=1, max_size=12)


def make_queues(*brokers: str, count: int = 4, topic: str = "TopicA") -> list[MessageQueue]:
    return [MessageQueue(broker, number, topic) for broker in brokers for number in range(count)]


def show(queues: list[MessageQueue]) -> str:
    """Queues as the tables below write them: `a0` is queue 0 of broker-a."""
    return " ".join(f"{queue.broker_name[-1]}{queue.queue_id}" for queue in queues)


def divide(strategy: Strategy, queues: list[MessageQueue], clients: list[str]) -> dict[str, list[MessageQueue]]:
    return {client: strategy.allocate(GROUP, client, queues, clients) for client in clients}


# --- results of Java --------------------------------------------------------------------------------------------

TEN_IN_ORDER = dict(zip([10, *range(1, 8)], ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"], strict=True))

# Eight queues (broker-a and broker-b) among the clients 10.0.0.k@p, by k.
GOLDEN: list[tuple[Strategy, int, dict[int, str]]] = [
    (AverageStrategy(), 3, {1: "a0 a1 a2", 2: "a3 b0 b1", 3: "b2 b3"}),
    (AverageStrategy(), 5, {1: "a0 a1", 2: "a2 a3", 3: "b0 b1", 4: "b2", 5: "b3"}),
    (AverageStrategy(), 10, TEN_IN_ORDER),
    (CircleStrategy(), 3, {1: "a0 a3 b2", 2: "a1 b0 b3", 3: "a2 b1"}),
    (CircleStrategy(), 5, {1: "a0 b1", 2: "a1 b2", 3: "a2 b3", 4: "a3", 5: "b0"}),
    (CircleStrategy(), 10, TEN_IN_ORDER),
    (ConsistentHashStrategy(), 3, {1: "a3 b0", 2: "a0 b2", 3: "a1 a2 b1 b3"}),
    (ConsistentHashStrategy(), 5, {1: "a3 b0", 2: "a0 b2", 3: "a2 b3", 4: "b1", 5: "a1"}),
    (ConsistentHashStrategy(), 10, {10: "b3", 1: "a3", 2: "a0 b2", 3: "a2", 7: "a1 b1", 9: "b0"}),
]


@pytest.mark.parametrize(
    ("strategy", "count", "expected"), GOLDEN, ids=[f"{strategy.name}-{count}" for strategy, count, _ in GOLDEN]
)
def test_golden_vectors(strategy: Strategy, count: int, expected: dict[int, str]) -> None:
    clients = sort_clients(f"10.0.0.{k}@p" for k in range(1, count + 1))
    parts = divide(strategy, sort_queues(make_queues("broker-b", "broker-a")), clients)
    assert {client: show(part) for client, part in parts.items()} == {
        f"10.0.0.{k}@p": expected.get(k, "") for k in range(1, count + 1)
    }


def test_machine_room_takes_neighbours_and_then_one_left_over() -> None:
    parts = divide(MachineRoomStrategy({"r1"}), make_queues("r1@b", count=5), ["c1", "c2", "c3"])
    assert {client: show(part) for client, part in parts.items()} == {"c1": "b0 b3", "c2": "b1 b4", "c3": "b2"}


def test_names_are_those_of_java() -> None:
    assert [strategy.name for strategy in ALL] == ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM"]
    assert ConfigStrategy([]).name == "CONFIG"
    assert NearbyRoomStrategy(CircleStrategy(), Rooms()).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"


# --- the order --------------------------------------------------------------------------------------------------


def test_text_is_sorted_by_utf16_units() -> None:
    assert sort_clients([WAVE, "b", GRIN, "中", "B", "ba", ""]) == ["", "B", "b", "ba", "中", GRIN, WAVE]
    assert sorted([WAVE, GRIN]) == [WAVE, GRIN]
    # Half a character is not text, and no reason to fail.
    assert sort_clients(["\ue000", "\udc00", GRIN, "\ud800"]) == ["\ud800", GRIN, "\udc00", "\ue000"]


def test_queues_are_sorted_by_topic_then_broker_then_number() -> None:
    expected = [
        MessageQueue("z", 9, "A"),
        MessageQueue("a", 2, "B"),
        MessageQueue("a", 10, "B"),
        MessageQueue(GRIN, 0, "B"),
        MessageQueue(WAVE, 0, "B"),
        MessageQueue("a", 0, GRIN),
        MessageQueue("a", 0, WAVE),
    ]
    assert sort_queues(reversed(expected)) == expected


@given(client_lists)
def test_clients_are_sorted_as_their_lists_of_units_and_none_is_lost(clients: list[str]) -> None:
    def list_units(text: str) -> list[int]:
        data = text.encode("utf-16-be")
        return [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]

    assert sort_clients(clients) == sorted(clients, key=list_units)


# --- for any queues and clients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", DIVIDING, ids=lambda strategy: strategy.name)
@given(queues=queue_lists, clients=client_lists)
def test_every_queue_has_exactly_one_owner(strategy: Strategy, queues: list[MessageQueue], clients: list[str]) -> None:
    queues, clients = sort_queues(queues), sort_clients(set(clients))
    parts = divide(strategy, queues, clients)
    assert sort_queues(queue for part in parts.values() for queue in part) == queues
    assert all(part == sort_queues(part) for part in parts.values())


@pytest.mark.parametrize("strategy", [AverageStrategy(), CircleStrategy()], ids=lambda strategy: strategy.name)
@given(queues=queue_lists, clients=client_lists)
def test_parts_differ_by_one_queue_at_most(strategy: Strategy, queues: list[MessageQueue], clients: list[str]) -> None:
    sizes = [len(part) for part in divide(strategy, sort_queues(queues), sort_clients(set(clients))).values()]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
@given(queues=queue_lists, clients=client_lists)
def test_no_queue_has_two_owners_when_a_client_is_listed_twice(
    strategy: Strategy, queues: list[MessageQueue], clients: list[str]
) -> None:
    queues = sort_queues(queues)
    given_out = [queue for part in divide(strategy, queues, sort_clients(clients)).values() for queue in part]
    assert len(set(given_out)) == len(given_out)
    assert set(given_out) <= set(queues)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: strategy.name)
def test_a_client_that_is_not_listed_gets_nothing(strategy: Strategy) -> None:
    queues = make_queues("r1@b")
    assert strategy.allocate(GROUP, "c2", queues, ["c1", "c3"]) == []
    assert strategy.allocate(GROUP, "c2", queues, []) == []
    assert strategy.allocate(GROUP, "c2", [], ["c1", "c2"]) == []
    assert NearbyRoomStrategy(strategy, Rooms()).allocate(GROUP, "c2", queues, ["c1", "c3"]) == []


# --- duplicates -------------------------------------------------------------------------------------------------


def test_a_client_listed_twice_shifts_those_behind_it_and_leaves_its_second_part_to_nobody() -> None:
    queues, clients = make_queues("broker-a"), ["c1", "c1", "c2", "c3"]
    for strategy in (AverageStrategy(), CircleStrategy()):
        parts = {client: show(part) for client, part in divide(strategy, queues, clients).items()}
        assert parts == {"c1": "a0", "c2": "a2", "c3": "a3"}


def test_a_client_listed_twice_has_twice_the_points_on_the_ring() -> None:
    queues = make_queues("broker-a", "broker-b", count=50)
    once = divide(ConsistentHashStrategy(), queues, ["c1", "c2"])
    twice = divide(ConsistentHashStrategy(), queues, ["c1", "c1", "c2"])
    by_hand = divide(ConsistentHashStrategy(20), queues, ["c1"])
    assert set(once["c1"]) < set(twice["c1"]) < set(by_hand["c1"])
    assert sort_queues(twice["c1"] + twice["c2"]) == queues


# --- the ring ---------------------------------------------------------------------------------------------------


def test_the_hash_is_the_first_four_bytes_of_md5() -> None:
    # MD5 of nothing is d41d8cd98f00b204e9800998ecf8427e.
    assert hash_md5("") == 0xD41D8CD9
    assert hash_md5("\ud800") == hash_md5("?")


def test_the_owner_is_at_the_point_itself_or_the_next_and_the_ring_is_round() -> None:
    points = {"c1-0": 10, "c2-0": 20}
    queues = make_queues("broker-a", count=5)
    places = [10, 11, 20, 21, 9]

    def place(key: str) -> int:
        return points[key] if key in points else places[int(key[:-1].rpartition("=")[2])]

    parts = divide(ConsistentHashStrategy(1, place), queues, ["c1", "c2"])
    assert {client: show(part) for client, part in parts.items()} == {"c1": "a0 a3 a4", "c2": "a1 a2"}


def test_of_two_clients_at_one_point_the_later_has_it() -> None:
    parts = divide(ConsistentHashStrategy(3, lambda key: 7), make_queues("broker-a"), ["c1", "c2"])
    assert {client: show(part) for client, part in parts.items()} == {"c1": "", "c2": "a0 a1 a2 a3"}


def test_few_queues_change_hands_when_a_client_leaves() -> None:
    queues, clients = make_queues("broker-a", "broker-b", count=100), ["c1", "c2", "c3"]
    before, after = (divide(ConsistentHashStrategy(), queues, listed) for listed in (clients, clients[:2]))
    assert all(set(before[client]) <= set(after[client]) for client in after)


def test_virtual_nodes() -> None:
    assert ConsistentHashStrategy(0).allocate(GROUP, "c1", make_queues("broker-a"), ["c1"]) == []
    with pytest.raises(ConfigError, match="-1 virtual nodes"):
        ConsistentHashStrategy(-1)


# --- configured, and by room ------------------------------------------------------------------------------------


def test_configured_queues_are_given_whatever_there_is() -> None:
    configured = make_queues("broker-z", count=2)
    strategy = ConfigStrategy(iter(configured))
    assert strategy.allocate(GROUP, "c1", make_queues("broker-a"), ["c1", "c2"]) == configured
    assert strategy.allocate(GROUP, "c1", [], []) == configured
    # The caller may modify the result.
    strategy.allocate(GROUP, "c1", [], []).clear()
    assert strategy.allocate(GROUP, "c1", [], []) == configured


@pytest.mark.parametrize(
    ("broker", "is_near"),
    [
        ("r1@b", True),
        ("r2@b", True),
        ("r3@b", False),
        ("r1", False),
        ("r1@", False),
        ("r1@@b", False),
        ("r1@b@c", False),
        # As Java splits.
        ("r1@b@", True),
        ("r1@b@@", True),
        ("@b", False),
        ("@", False),
        ("", False),
    ],
)
def test_machine_room_of_a_broker_name(broker: str, is_near: bool) -> None:
    queues = [MessageQueue(broker, 0, "TopicA")]
    assert MachineRoomStrategy(["r1", "r2"]).allocate(GROUP, "c1", queues, ["c1"]) == (queues if is_near else [])
    assert MachineRoomStrategy([""]).allocate(GROUP, "c1", queues, ["c1"]) == (queues if broker == "@b" else [])


class Rooms:
    """Names of brokers and clients begin with their room and a dash."""

    def find_broker_room(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("-")[0]

    def find_client_room(self, client_id: str) -> str:
        return client_id.partition("-")[0]


def test_nearby_keeps_queues_in_their_room_and_shares_rooms_without_clients() -> None:
    queues = sort_queues(make_queues("r1-a", "r2-b", f"{WAVE}-c", f"{GRIN}-d", count=3))
    parts = divide(NearbyRoomStrategy(AverageStrategy(), Rooms()), queues, ["r1-1", "r1-2", "r2-1"])
    assert {client: show(part) for client, part in parts.items()} == {
        "r1-1": "a0 a1 d0 c0",
        "r1-2": "a2 d1 c1",
        "r2-1": "b0 b1 b2 d2 c2",
    }


def test_nearby_without_queues_in_the_own_room() -> None:
    parts = divide(NearbyRoomStrategy(CircleStrategy(), Rooms()), make_queues("r1-a"), ["r1-1", "r2-1"])
    assert {client: show(part) for client, part in parts.items()} == {"r1-1": "a0 a1 a2 a3", "r2-1": ""}


@given(queues=queue_lists, clients=client_lists)
def test_nearby_gives_every_queue_one_owner(queues: list[MessageQueue], clients: list[str]) -> None:
    queues = sort_queues(queue for queue in queues if not queue.broker_name.startswith("-"))
    clients = sort_clients({client for client in clients if not client.startswith("-")} | {"a"})
    for strategy in DIVIDING:
        parts = divide(NearbyRoomStrategy(strategy, Rooms()), queues, clients)
        assert sort_queues(queue for part in parts.values() for queue in part) == queues


def test_nearby_refuses_to_guess_a_room() -> None:
    strategy = NearbyRoomStrategy(AverageStrategy(), Rooms())
    with pytest.raises(ConfigError, match=r"no machine room for -2 .*resolver"):
        strategy.allocate(GROUP, "r1-1", make_queues("r1-a"), ["r1-1", "-2"])
    with pytest.raises(ConfigError, match=r"no machine room for MessageQueue.*broker_name='-a'"):
        strategy.allocate(GROUP, "r1-1", make_queues("-a"), ["r1-1"])


# --- by name, and what changes ----------------------------------------------------------------------------------


def test_strategies_are_found_by_name() -> None:
    assert isinstance(find_strategy("average"), AverageStrategy)
    assert isinstance(find_strategy("circle"), CircleStrategy)
    assert isinstance(find_strategy("consistent-hash"), ConsistentHashStrategy)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("averge", r"'averge' \(did you mean average\?\)"),
        ("CONSISTENT_HASH", r"'CONSISTENT_HASH' \(did you mean consistent-hash\?\)"),
        ("", r"'' \(available: average, circle, consistent-hash\)"),
        ("machine-room", r"\(available: average, circle, consistent-hash\)"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_strategy(name)


def test_a_change_is_what_comes_and_what_goes_in_order() -> None:
    a0, a1, b0, b1 = make_queues("broker-a", "broker-b", count=2)
    assert plan_change([], []) == Change([], [])
    assert plan_change([b1, a0, a0], [b1, a0]) == Change([], [])
    assert plan_change({b1, a1}, [b0, a0, a1, a0]) == Change([a0, b0], [b1])
    assert plan_change(iter([b1, a1, b0]), iter([])) == Change([], [a1, b0, b1])


@given(owned=queue_lists, allotted=queue_lists)
def test_a_change_leads_from_one_to_the_other(owned: list[MessageQueue], allotted: list[MessageQueue]) -> None:
    change = plan_change(owned, allotted)
    assert (set(owned) - set(change.dropped)) | set(change.added) == set(allotted)
    assert not set(change.added) & set(owned)
    assert not set(change.dropped) & set(allotted)
    assert plan_change(reversed(owned), reversed(allotted)) == change
