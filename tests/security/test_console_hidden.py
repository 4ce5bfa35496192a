"""What the console shows of others to a user: nothing of hidden groups, no bodies, no secrets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca import Producer
from eruca._console.identity.masking import read_rule
from eruca._console.identity.rights import Role, read_grants
from eruca._console.watching.rules import Rule, RuleKind
from eruca._console.watching.samples import GroupSample, Sample
from tests.integration.broker.conftest import excuse_new_files
from tests.security.attackers import run_victims
from tests.security.consoles import CLUSTER, run_console
from tests.unit.net.rawpeer import turn_until


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let stores and the console make files."""
    excuse_new_files(forbid_blocking_calls)


async def test_the_overview_names_nothing_that_is_hidden(tmp_path: Path) -> None:
    """Alarms of groups that the user may not see; bodies in the commands of changes."""
    async with (
        run_victims(tmp_path / "cluster") as victims,
        run_console(tmp_path / "console", nameserver=victims.nameserver.address) as running,
    ):
        parts = running.console.parts
        await turn_until(lambda: parts.watching.find_last(CLUSTER) is not None)
        await parts.watching._samplers[CLUSTER].stop()
        await parts.watching.tables.put_rule(Rule(id=0, name="late", kind=RuleKind.LAG, threshold=1))
        group = GroupSample(group="secret-group", lag=5)
        await parts.watching.take(Sample(cluster=CLUSTER, at=datetime.now(UTC), groups={group.group: group}))
        await parts.identity.audit.add(
            user="admin",
            cluster=CLUSTER,
            action="message.send",
            target="orders",
            command="eruca send orders 'card 4711'",
            after={"body": "card 4711"},
            reason="card 4711",
            outcome="done",
        )
        operator = await running.log_in("ann", Role.OPERATOR)
        told = [(await operator.get(f"{at}/c/{CLUSTER}")).text for at in ("", "/api")]
        assert all("secret-group" in text and "orders" in text for text in told)
        assert not any("4711" in text for text in told)
        other = await running.log_in("bob", Role.OPERATOR, read_grants("group secret none"))
        told = [(await other.get(f"{at}/c/{CLUSTER}")).text for at in ("", "/api")]
        assert all("broker-a" in text for text in told)
        assert not any("secret-group" in text for text in told)


async def test_a_channel_shows_only_the_host_of_its_url(tmp_path: Path) -> None:
    """What comes after it is often a secret, wherever it is."""
    secret = "hunter2"
    paths = (f"/{secret}", f"/?token={secret}", f"?token={secret}", f"#{secret}", f"/a?{secret}#{secret}")
    async with run_console(tmp_path) as running:
        browser = await running.log_in_first()
        for number, path in enumerate(paths):
            form = {"name": f"c{number}", "kind": "webhook", "target": f"https://hooks.example.com{path}"}
            answer = await browser.post(f"/api/c/{CLUSTER}/alarms/new/channel", form)
            assert answer.status_code == 200, answer.text
        told = [
            (await browser.get(path)).text
            for path in (f"/c/{CLUSTER}/alarms/channels", f"/api/c/{CLUSTER}/alarms/channels", "/audit")
        ]
        assert all("hooks.example.com" in text for text in told)
        assert not any(secret in text for text in told)


async def test_hidden_keys_are_neither_shown_nor_found(tmp_path: Path) -> None:
    """A key that can be looked for can be guessed."""
    async with (
        run_victims(tmp_path / "cluster") as victims,
        run_console(tmp_path / "console", nameserver=victims.nameserver.address) as running,
    ):
        async with Producer(victims.nameserver.address, group="p", trace=True) as producer:
            for delay in (None, timedelta(minutes=30)):
                await producer.send("orders", b"x", keys=["card-4711"], tags="gold", delay=delay)
        await running.console.identity.masking.add(read_rule("ord", "property:KEYS property:TAGS", "admin"))
        browser = await running.log_in("ann", Role.OPERATOR)
        at = f"/api/c/{CLUSTER}"
        for path in (
            f"{at}/messages?topic=orders&mode=key&name=card-4711",
            f"/c/{CLUSTER}/messages/more?topic=orders&mode=key&name=card-4711",
            f"/c/{CLUSTER}/tail/events?topic=orders&key=card-4711",
            f"{at}/deadletters/billing?key=card-4711",
        ):
            answer = await browser.get(path)
            assert answer.status_code == 403 and "keys" in answer.text, path
        shown = [await browser.get(f"{at}{path}") for path in ("/messages?topic=orders", "/delayed")]
        assert [len(answer.json()["items"]) for answer in shown] == [1, 1]
        assert not any(hidden in answer.text for answer in shown for hidden in ("card-4711", "gold"))
        traced = (await browser.get(f"{at}/traces?topic=orders&name=card-4711")).json()
        assert traced["events"] == []
        # An administrator reads all of it.
        admin = await running.log_in("root", Role.ADMIN)
        for path in ("/messages?topic=orders&mode=key&name=card-4711", "/delayed"):
            assert "card-4711" in (await admin.get(f"{at}{path}")).text
        assert (await admin.get(f"{at}/traces?topic=orders&name=card-4711")).json()["events"]
