"""A pytest plugin with a real broker, started once per session; every test has its own topic and group.

It is active as soon as eruca is installed. A run that uses none of its fixtures only imports this module.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import eruca.sync
    from eruca._client.produce.producer import Producer
    from eruca._client.push.consumer import Consumer
    from eruca._testing.embedded import EmbeddedBroker

MakeConsumer = Callable[..., "Consumer"]
MakeSyncConsumer = Callable[..., "eruca.sync.Consumer"]

_NAME_CHARACTERS_MAX = 60
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def eruca_broker_options() -> Mapping[str, Any]:
    """Options of the broker of this session; override this fixture to change them.

    By default delayed messages, retries and transaction checks come at once. `{}` starts a broker with the delays of
    production. Any field of the options of broker and store may be set.
    """
    return {"hurry": True}


@pytest.fixture(scope="session")
def eruca_broker(eruca_broker_options: Mapping[str, Any]) -> Iterator[EmbeddedBroker]:
    """A real name server and broker for the whole session, with `.nameserver`, `.address` and `.create_topic()`."""
    from eruca._testing.embedded import EmbeddedBroker

    with EmbeddedBroker(**eruca_broker_options) as broker:
        yield broker


@pytest.fixture
def eruca_topic(eruca_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """The name of a topic of this test: it exists, with four queues and no messages."""
    topic = _name_after(request)
    eruca_broker.create_topic(topic)
    return topic


@pytest.fixture
def eruca_group(request: pytest.FixtureRequest) -> str:
    """The name of a group of this test."""
    return _name_after(request)


@pytest.fixture
def eruca_producer(request: pytest.FixtureRequest) -> Producer:
    """A started producer for an async test."""
    producer: Producer = _find_async(request, "eruca_producer")
    return producer


@pytest.fixture
def eruca_consumer(request: pytest.FixtureRequest) -> MakeConsumer:
    """Makes consumers for an async test: `async with eruca_consumer(subscribe=eruca_topic) as consumer`.

    Arguments are those of Consumer. By default they are in the group of the test and start with the earliest message.
    Those still open when the test ends are closed.
    """
    make: MakeConsumer = _find_async(request, "eruca_consumer")
    return make


@pytest.fixture
def eruca_sync_producer(eruca_broker: EmbeddedBroker, eruca_group: str) -> Iterator[eruca.sync.Producer]:
    """A started producer for a plain test."""
    from eruca.sync import Producer

    with Producer(eruca_broker.nameserver, group=eruca_group) as producer:
        yield producer


@pytest.fixture
def eruca_sync_consumer(eruca_broker: EmbeddedBroker, eruca_group: str) -> Iterator[MakeSyncConsumer]:
    """Makes consumers for a plain test: `with eruca_sync_consumer(subscribe=eruca_topic) as consumer`.

    The same as `eruca_consumer` without `async`.
    """
    from eruca.sync import Consumer

    made: list[eruca.sync.Consumer] = []

    def make(**options: Any) -> eruca.sync.Consumer:
        made.append(Consumer(eruca_broker.nameserver, **_choose_defaults(eruca_group, options)))
        return made[-1]

    yield make
    for consumer in reversed(made):
        consumer.close()


def _choose_defaults(group: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"group": group, "start": "earliest", "drain": 1.0, **options}


# -- async fixtures: pytest-asyncio requires its own mark, anyio takes plain ones --------------------------------------


def _define(mark: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return the async fixtures, marked for the plugin that runs them: one function cannot have both marks."""

    @mark
    async def run_producer(eruca_broker: EmbeddedBroker, eruca_group: str) -> AsyncIterator[Producer]:
        from eruca._client.produce.producer import Producer

        async with Producer(eruca_broker.nameserver, group=eruca_group) as producer:
            yield producer

    @mark
    async def make_consumers(eruca_broker: EmbeddedBroker, eruca_group: str) -> AsyncIterator[MakeConsumer]:
        from eruca._client.push.consumer import Consumer

        made: list[Consumer] = []

        def make(**options: Any) -> Consumer:
            made.append(Consumer(eruca_broker.nameserver, **_choose_defaults(eruca_group, options)))
            return made[-1]

        yield make
        for consumer in reversed(made):
            await consumer.close()

    return run_producer, make_consumers


_eruca_producer_anyio, _eruca_consumer_anyio = _define(pytest.fixture)
# A plugin that is installed and not disabled is imported by pytest now or soon.
if importlib.util.find_spec("pytest_asyncio") is not None:
    import pytest_asyncio

    _eruca_producer_asyncio, _eruca_consumer_asyncio = _define(pytest_asyncio.fixture)


def _find_async(request: pytest.FixtureRequest, name: str) -> Any:
    runner = "anyio" if "anyio_backend" in request.fixturenames else "asyncio"
    if runner == "asyncio" and not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail(f"{name} is for async tests: install pytest-asyncio, or mark the test with anyio", pytrace=False)
    return request.getfixturevalue(f"_{name}_{runner}")


def _name_after(request: pytest.FixtureRequest) -> str:
    """Return a name that contains the name of the test and that no other test of this process gets."""
    readable = _NOT_IN_NAMES.sub("_", request.node.name)[:_NAME_CHARACTERS_MAX].strip("_")
    return f"{readable}-{next(_numbers)}"
