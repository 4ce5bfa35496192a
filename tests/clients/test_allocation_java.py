"""Our allocation strategies against the official ones: random groups, every client of each, one Java process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eruca._core.allocation import (
    AverageStrategy,
    CircleStrategy,
    ConfigStrategy,
    ConsistentHashStrategy,
    MachineRoomStrategy,
    NearbyRoomStrategy,
    Strategy,
    sort_clients,
    sort_queues,
)
from eruca._wire.bodies import MessageQueue
from eruca._wire.javahash import java_hash
from eruca.errors import ConfigError
from tests.figures import note_figures
from tests.interop.javapeer import JavaProgram, prepare_peer
from tests.needs import starts

# Java compiles a program of one file by itself when it is given the file.
PROGRAM = Path(__file__).parent / "java" / "Allocation.java"
SEED = 20_240_607
CASES = 400
RULES = ["average", "circle", "config", "room", "hash", "crowded", "crowded", "nearby", "nearby", "nearby"]

# In UTF-16, the order of Java, the last two change places.
LETTERS = ["a", "Z", "0", "9", "é", "中", "\uff5e", "\U0001f600"]
STRANGER = "nobody"


class Prefixes:
    """Names of brokers and clients begin with their room and a dash."""

    def find_broker_room(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("-")[0]

    def find_client_room(self, client_id: str) -> str:
        return client_id.partition("-")[0]


@dataclass(frozen=True)
class Case:
    """One group: who wants to know, of which queues and clients, by which rule here and there."""

    strategy: Strategy
    rule: dict[str, Any]
    queues: list[MessageQueue]
    clients: list[str]

    @property
    def asked(self) -> list[str]:
        """Every client once, and one that is not in the group."""
        return [*dict.fromkeys(self.clients), STRANGER]

    def describe(self) -> dict[str, Any]:
        """The case as the Java program takes it."""
        queues = [[queue.topic, queue.broker_name, queue.queue_id] for queue in self.queues]
        return {**self.rule, "queues": queues, "clients": self.clients, "asked": self.asked}

    def solve(self) -> dict[str, Any]:
        """What the Java program answers, if it and we agree."""
        places = {queue: place for place, queue in enumerate(self.queues)}
        clients = sort_clients(self.clients)
        queues = sort_queues(self.queues)
        order = sorted(range(len(clients)), key=lambda place: (clients.index(self.clients[place]), place))
        parts: list[list[int] | None] = []
        for client in self.asked:
            try:
                part = self.strategy.allocate("GroupA", client, queues, clients)
            except ConfigError:
                parts.append(None)
            else:
                parts.append([places[queue] for queue in part])
        return {
            "name": self.strategy.name,
            "queues": [places[queue] for queue in queues],
            "clients": order,
            "parts": parts,
        }


def make_case(rule: str, chance: random.Random) -> Case:
    """A group with brokers and clients in a few rooms, some clients listed twice, nothing sorted."""
    # In most groups each has a room: a strategy that is told of one without does nothing else than raise.
    rooms = ["".join(chance.choices(LETTERS, k=2)) for _ in range(5)] + chance.choice([[], [], [""]])
    dash = "-" if rule == "nearby" else "@"
    brokers = {
        f"{chance.choice(rooms)}{dash}{''.join(chance.choices(LETTERS, k=chance.randint(0, 2)))}"
        f"{chance.choice(['', '', '', '@', '@@', '@x'])}"
        for _ in range(chance.randint(1, 6))
    }
    topics = chance.sample(LETTERS, chance.choice([1, 1, 2]))
    queues = [
        MessageQueue(broker, number, topic)
        for topic in topics
        for broker in sorted(brokers)
        for number in chance.choice([range(1), range(4), range(6), range(8, 12), range(98, 101)])
    ]
    clients = [
        f"{chance.choice(rooms[-3:])}-10.0.0.{chance.randint(1, 20)}@{chance.choice(LETTERS)}"
        for _ in range(chance.choice([1, 2, 3, 5, 8, 15]))
    ]
    clients += chance.choices(clients, k=chance.choice([0, 0, 1, 6]))
    chance.shuffle(queues)
    chance.shuffle(clients)
    return Case(*make_rule(rule, rooms, queues, chance), queues, clients)


def make_rule(
    rule: str, rooms: list[str], queues: list[MessageQueue], chance: random.Random
) -> tuple[Strategy, dict[str, Any]]:
    """A strategy of ours, and how to tell the Java program of the same one."""
    match rule:
        case "average":
            return AverageStrategy(), {"rule": rule}
        case "circle":
            return CircleStrategy(), {"rule": rule}
        case "config":
            count = chance.randint(0, len(queues))
            return ConfigStrategy(queues[:count]), {"rule": rule, "configured": count}
        case "room":
            near = chance.sample(rooms, 2)
            return MachineRoomStrategy(near), {"rule": rule, "rooms": near}
        case "hash":
            nodes = chance.choice([10, 10, 1, 50])
            return ConsistentHashStrategy(nodes), {"rule": rule, "virtualNodes": nodes}
        case "crowded":
            size = chance.choice([1, 16, 64, 64])
            strategy = ConsistentHashStrategy(8, lambda key: java_hash(key) % size)
            return strategy, {"rule": rule, "virtualNodes": 8, "ring": size}
    inner, told = make_rule(chance.choice(["average", "circle", "hash", "crowded"]), rooms, queues, chance)
    return NearbyRoomStrategy(inner, Prefixes()), {"rule": rule, "inner": told}


@pytest.fixture(scope="module")
@starts("java")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    with JavaProgram(prepare_peer(), str(PROGRAM), tmp_path_factory.mktemp("allocation")) as started:
        yield started


def test_every_client_gets_what_java_gives_it(program: JavaProgram) -> None:
    note_figures(f"allocation as in Java: seed {SEED}, {CASES} cases")
    chance = random.Random(SEED)
    cases = [make_case(RULES[number % len(RULES)], chance) for number in range(CASES)]
    answers = program.ask({"cases": [case.describe() for case in cases]})
    assert len(answers) == CASES
    for case, answer in zip(cases, answers, strict=True):
        assert case.solve() == answer, case.describe()
    # The cases are worth something: each rule gave queues away, and the odd ones are among them.
    gave = Counter(answer["name"] for answer in answers if any(answer["parts"]))
    inners = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]
    expected = {*inners, "CONFIG", "MACHINE_ROOM", *(f"MACHINE_ROOM_NEARBY-{name}" for name in inners)}
    assert gave.keys() == expected
    assert min(gave.values()) >= 5
    assert sum(len(set(case.clients)) < len(case.clients) for case in cases) > 50
    assert sum(case.clients != sorted(case.clients) for case in cases) > 100
    assert sum(sort_clients(case.clients) != sorted(case.clients) for case in cases) > 10
    assert sum(None in answer["parts"] for answer in answers) >= 5


def test_java_raises_where_there_is_nothing_to_divide(program: JavaProgram) -> None:
    empty = [
        Case(AverageStrategy(), {"rule": "average"}, [], ["c1"]),
        Case(CircleStrategy(), {"rule": "circle"}, [MessageQueue("b", 0, "T")], []),
    ]
    answers = program.ask({"cases": [case.describe() for case in empty]})
    assert [set(map(repr, answer["parts"])) for answer in answers] == [{"None"}, {"None"}]
    assert [part for case in empty for part in case.solve()["parts"]] == [[], [], []]
