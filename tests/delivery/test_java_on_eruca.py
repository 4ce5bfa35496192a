"""Java producers and consumers against Eruca: each part of delivery with many messages and an exact account.

All parts start together, eight at a time in one Java process, because they mostly wait. The whole suite also runs them
against the Java broker, which shows that the expectations match its behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from eruca import Message, Producer
from tests.clients.stage import create_topic, make_consumer
from tests.delivery.plans import PARTS, SEED
from tests.figures import note_figures
from tests.interop.behaviour import BehaviourProgram, Facts
from tests.interop.brokers import Cluster
from tests.interop.javapeer import Peer

SYSTEMS = ["eruca", pytest.param("java", marks=pytest.mark.whole)]
REQUESTS = 50

FindFacts = Callable[[str], Facts]


@pytest.fixture(scope="session")
def start_program(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], BehaviourProgram]]:
    """Start another Java process with the cases of delivery."""
    started: list[BehaviourProgram] = []

    def start() -> BehaviourProgram:
        home = tmp_path_factory.mktemp("java-delivery")
        started.append(BehaviourProgram(peer, home, "JSON", main="eruca.interop.Delivery"))
        return started[-1]

    yield start
    for program in started:
        program.__exit__(None, None, None)


@pytest.fixture(scope="session")
def find_facts(
    system: Cluster, start_program: Callable[[], BehaviourProgram], request: pytest.FixtureRequest
) -> FindFacts:
    """Start all selected parts for this system; return a function that fetches the result of one of them."""
    wanted = [name for kind, name in map(_read_parameters, request.session.items) if kind == system.kind]
    # Two parts may be the same case with two plans; a process distinguishes its cases by name only.
    programs: dict[str, BehaviourProgram] = {}
    taken: list[tuple[BehaviourProgram, str]] = []
    for name in wanted:
        case = PARTS[name].case
        free = [one for one in programs.values() if (one, case) not in taken]
        program = free[0] if free else start_program()
        taken.append((program, case))
        programs[name] = program
        program.submit(case, system, PARTS[name].plan)
    return lambda name: programs[name].wait_for_facts(PARTS[name].case, system)


def _read_parameters(item: pytest.Item) -> tuple[str, str]:
    spec = getattr(item, "callspec", None)
    if spec is None or getattr(item, "originalname", None) != test_java_clients.__name__:
        return "", ""
    return spec.params["system"], spec.params["name"]


def list_parts() -> list[object]:
    """The parts as parameters; the long ones are left out of `make test`."""
    return [pytest.param(name, marks=[pytest.mark.whole] if part.is_whole else []) for name, part in PARTS.items()]


@pytest.mark.parametrize("system", SYSTEMS, indirect=True)
@pytest.mark.parametrize("name", list_parts())
def test_java_clients(name: str, system: Cluster, find_facts: FindFacts) -> None:
    part = PARTS[name]
    told = part.check(part.plan, find_facts(name))
    note_figures(f"Java clients on {system.kind}, {name}, seed {SEED}: {told}")


# --- requests between Java and Python -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def java_partner(start_program: Callable[[], BehaviourProgram]) -> BehaviourProgram:
    """A Java process that asks what we answer, and answers what we ask."""
    return start_program()


def _run(program: BehaviourProgram, system: Cluster, case: str, topic: str) -> Facts:
    program.submit(case, system, {"topic": topic, "count": REQUESTS})
    return program.wait_for_facts(case, system)


@pytest.mark.parametrize("system", SYSTEMS, indirect=True)
async def test_python_answers_java(system: Cluster, java_partner: BehaviourProgram) -> None:
    topic = "delivery-java-asks"
    consumer = make_consumer(system.name_server, "delivery-python-answers")
    answered = 0
    async with Producer(system.name_server, group="delivery-repliers") as producer:
        await create_topic(producer, topic)

        @consumer.handler(topic)
        async def answer(message: Message) -> None:
            nonlocal answered
            await producer.reply(message, b"re " + message.body)
            answered += 1

        async with consumer:
            facts = await asyncio.to_thread(_run, java_partner, system, "asks", topic)
    assert facts["replies"] == [f"re q{number}" for number in range(REQUESTS)]
    assert answered == REQUESTS
    note_figures(f"{REQUESTS} requests of Java answered by Python on {system.kind}")


@pytest.mark.parametrize("system", SYSTEMS, indirect=True)
async def test_java_answers_python(system: Cluster, java_partner: BehaviourProgram) -> None:
    topic = "delivery-python-asks"
    async with Producer(system.name_server, group="delivery-askers") as producer:
        await create_topic(producer, topic)
        questions = [producer.request(topic, b"q%d" % number, timeout=25) for number in range(REQUESTS)]
        facts, *replies = await asyncio.gather(
            asyncio.to_thread(_run, java_partner, system, "answers", topic), *questions
        )
    assert [reply.body for reply in replies] == [b"re q%d" % number for number in range(REQUESTS)]
    assert facts == {"answered": REQUESTS}
    note_figures(f"{REQUESTS} requests of Python answered by Java on {system.kind}")
