"""The pages of groups over HTTP: what can be moved while members are connected, and what the pages say about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eruca import Consumer, Message, Offsets
from eruca._console.identity.rights import Role
from eruca._testing.embedded import EmbeddedBroker
from eruca.admin import Admin
from tests.admin.stage import poll
from tests.integration.broker.conftest import allow_new_files
from tests.security.consoles import CLUSTER, Browser, run_console

__all__ = ["allow_new_files"]

GROUP, TOPIC = "billing", "orders"
PAGE = f"/c/{CLUSTER}/groups/{GROUP}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("home")) as it:
        yield it


@pytest.fixture
async def admin(broker: EmbeddedBroker) -> AsyncIterator[Admin]:
    async with Admin(broker.nameserver) as admin:
        yield admin


@pytest.fixture
async def operator(tmp_path: Path, broker: EmbeddedBroker) -> AsyncIterator[Browser]:
    async with run_console(tmp_path / "console", nameserver=broker.nameserver) as running:
        yield await running.log_in("olga", Role.OPERATOR)


async def test_one_queue_is_moved_when_no_member_is_connected(
    broker: EmbeddedBroker, admin: Admin, operator: Browser
) -> None:
    await admin.topics.create(TOPIC, queues=1)
    for _ in range(3):
        await admin.messages.send(TOPIC, b"hello")
    release = asyncio.Event()
    consumer = Consumer(broker.nameserver, group=GROUP, start="earliest", offsets=Offsets(interval=0.1))

    @consumer.handler(TOPIC)
    async def wait(message: Message) -> None:
        await release.wait()

    query = {"topic": TOPIC, "broker": "embedded", "queue": "0"}
    async with consumer:
        await poll(lambda: admin.offsets.show(GROUP), lambda found: any(row.lag for row in found.items))
        await poll(lambda: admin.groups.members(GROUP), lambda found: bool(found.items))
        inside = (await operator.get(f"{PAGE}/inside")).text
        assert "One queue cannot be moved while members are connected" in inside
        assert "Stop all members of the group." in inside
        assert f"{PAGE}/set" not in inside
        assert f'href="{PAGE}/reset"' in inside
        form = (await operator.get(f"{PAGE}/set", params=query)).text
        assert "A member is connected." in form
        release.set()
    await poll(lambda: admin.groups.connections([GROUP]), lambda found: not any(r.connections for r in found.items))
    await admin.messages.send(TOPIC, b"one more")

    async def look() -> str:
        return (await operator.get(f"{PAGE}/inside")).text

    inside = await poll(look, lambda text: "Step over the message" in text)
    assert "while members are connected" not in inside
    assert f"{PAGE}/set?topic={TOPIC}&amp;broker=embedded&amp;queue=0" in inside
    assert "Looked at <time" in inside
    assert "A member is connected." not in (await operator.get(f"{PAGE}/set", params=query)).text
    chinese = await operator.get(f"{PAGE}/inside", headers={"Accept-Language": "zh"})
    assert "</time>查看" in chinese.text
