"""One broker for the commands of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eruca._testing.embedded import EmbeddedBroker
from tests.integration.admin.staging import send, stage
from tests.integration.cli.commands import Commands


@pytest.fixture(scope="module")
def operated() -> Iterator[EmbeddedBroker]:
    """A broker with a topic `orders` of two queues and six messages in it."""
    with EmbeddedBroker(hurry=True) as started:
        started.create_topic("orders", 2)
        stage(started.nameserver, lambda admin: send(admin, "orders", 6))
        yield started


@pytest.fixture(scope="module")
def cli(operated: EmbeddedBroker) -> Commands:
    """Its commands."""
    return Commands(operated.nameserver)
