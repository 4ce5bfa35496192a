"""Lists that are shown as cards, or in parts, are exported too; copied commands that leave something out say so."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eruca._console.identity.rights import Role
from eruca._console.watching.rules import Rule, RuleKind
from eruca._console.watching.samples import GroupSample, Sample
from eruca._testing.embedded import EmbeddedBroker
from eruca.admin import Admin
from tests.integration.broker.conftest import allow_new_files
from tests.security.consoles import CLUSTER, Browser, Running, run_console

__all__ = ["allow_new_files"]

AT = f"/c/{CLUSTER}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("home")) as it:
        yield it


@pytest.fixture
async def running(tmp_path: Path, broker: EmbeddedBroker) -> AsyncIterator[Running]:
    async with run_console(tmp_path / "console", nameserver=broker.nameserver) as it:
        yield it


async def export(browser: Browser, path: str, **query: str) -> list[dict[str, str]]:
    answer = await browser.get(path, params={"format": "csv", **query})
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/csv"), answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


async def test_alarms_and_channels_are_exported(running: Running) -> None:
    watching = running.console.parts.watching
    await watching._samplers[CLUSTER].stop()
    await watching.tables.put_rule(Rule(id=0, name="late", kind=RuleKind.LAG, threshold=10))
    await watching.tables.put_rule(Rule(id=0, name="later", kind=RuleKind.LAG, threshold=10, duration=3600))
    group = GroupSample(group="billing", lag=50)
    await watching.take(Sample(cluster=CLUSTER, at=datetime.now(UTC), groups={group.group: group}))
    browser = await running.log_in("root", Role.ADMIN)
    rows = await export(browser, f"{AT}/alarms", table="open")
    found = [(row["target"], row["rule"], row["state"], row["value"]) for row in rows]
    assert sorted(found) == [
        ("billing", "late", "firing", "50 messages"),
        ("billing", "later", "pending", "50 messages"),
    ]
    page = (await browser.get(f"{AT}/alarms")).text
    assert "50 messages wait (limit 10)" in page
    # The link of the page leads to the rows, and not to the page once more.
    assert f'href="{AT}/alarms?format=csv&amp;table=open"' in page
    hook = {"name": "on call", "kind": "webhook", "target": "https://hooks.example.com/x"}
    assert (await browser.post(f"/api{AT}/alarms/new/channel", hook)).status_code == 200
    (channel,) = await export(browser, f"{AT}/alarms/channels", table="channels")
    assert (channel["name"], channel["kind"], channel["is_signed"]) == ("on call", "webhook", "False")
    assert "table=channels" in (await browser.get(f"{AT}/alarms/channels")).text


async def test_routes_are_exported_and_a_filter_is_not_in_the_command(running: Running, broker: EmbeddedBroker) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.topics.create("orders", queues=2)
    browser = await running.log_in("olga", Role.OPERATOR)
    (row,) = await export(browser, f"{AT}/topics/orders", tab="routes", table="routes")
    assert (row["broker"], row["write_queues"], row["permission"]) == ("embedded", "2", "RW")
    for path in ("messages", "tail"):
        query = {"topic": "orders", "filter": "body contains 'x'"}
        assert "The filter is not in the command" in (await browser.get(f"{AT}/{path}", params=query)).text
        del query["filter"]
        assert "The filter is not in the command" not in (await browser.get(f"{AT}/{path}", params=query)).text
