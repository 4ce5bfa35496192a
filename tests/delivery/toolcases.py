"""`eruca dlq` and `eruca txn` as operators run them, against any system."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

from eruca import Consumer, Message, Offsets, Outcome
from eruca._admin.transactiontable import State
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca._wire.names import DLQ_PREFIX
from eruca.admin import Admin
from tests.figures import note_figures
from tests.integration.admin.staging import (
    TRANSACTION_GROUP,
    decide,
    prepare,
    read_bodies,
    send,
    wait_for_state,
    wait_until,
)
from tests.integration.cli.upprocess import run_here
from tests.interop.brokers import Cluster

LETTERS = 6
DECIDED = 5


class Desk:
    """The environment of an operator."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def run(self, *arguments: str, status: int = 0) -> list[dict[str, Any]]:
        """Run a command; return the rows it prints."""
        words = [*arguments, "-n", self.cluster.name_server]
        done = await asyncio.to_thread(run_here, *words)
        assert done.returncode == status, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


class Group:
    """A consumer group that fails on everything until it is told to succeed."""

    def __init__(self, cluster: Cluster, group: str, topic: str, *, fails: bool) -> None:
        self.fails = fails
        self.seen: Counter[str] = Counter()
        self.consumer = Consumer(cluster.name_server, group=group, start="earliest", offsets=Offsets(interval=0.2))
        self.consumer.handler(topic)(self._take)

    async def _take(self, message: Message) -> Outcome:
        if self.fails:
            return Outcome.DEAD
        assert message.topic.startswith("Tools")
        self.seen[message.body.decode()] += 1
        return Outcome.DONE

    async def has(self, count: int) -> bool:
        """Whether it has consumed this many."""
        return self.seen.total() >= count


async def use_dead_letters(cluster: Cluster, home: Path, name: str) -> None:
    """Dead letters are listed, exported and sent again: to their group alone, then to all groups."""
    desk, topic, group = Desk(cluster), f"Tools-{name}", f"Failing-{name}"
    bodies = Counter(f"body {number}" for number in range(LETTERS))
    async with Admin(cluster.name_server) as admin:
        await send(admin, topic, LETTERS)
        failing = Group(cluster, group, topic, fails=True)
        witness = Group(cluster, f"Witness-{name}", topic, fails=False)
        async with failing.consumer, witness.consumer:
            await wait_until(lambda: _are_dead(admin, group), "the dead letters")
            letters = await desk.run("dlq", "list", group, "-o", "json")
            newest = max(letter["stored_at"] for letter in letters)
            listed = {"group": group, "count": LETTERS, "last_at": newest, "problem": ""}
            assert listed in await desk.run("dlq", "list", "-o", "json")
            assert {letter["topic"] for letter in letters} == {topic}
            exported = await desk.run("dlq", "export", group)
            assert Counter(base64.b64decode(row["body_base64"]).decode() for row in exported) == bodies
            failing.fails = False
            sent = await desk.run(
                "dlq",
                "resend",
                group,
                "--all",
                "--only-group",
                "--journal",
                str(home / "journal"),
                "--yes",
                "-o",
                "json",
            )
            assert [row["outcome"] for row in sent] == ["sent"] * LETTERS
            await wait_until(lambda: failing.has(LETTERS), "all of them in the group")
            assert failing.seen == witness.seen == bodies
            again = await desk.run(
                "dlq",
                "resend",
                group,
                "--all",
                "--only-group",
                "--journal",
                str(home / "journal"),
                "--yes",
                "-o",
                "json",
            )
            assert [row["outcome"] for row in again] == ["skipped"] * LETTERS
            (one,) = await desk.run("dlq", "resend", group, letters[0]["message_id"], "-o", "json")
            assert (one["topic"], one["outcome"]) == (topic, "sent")
            await wait_until(lambda: witness.has(LETTERS + 1), "one of them everywhere")
            await wait_until(lambda: failing.has(LETTERS + 1), "one of them everywhere")
    note_figures(
        f"tools: {LETTERS} dead letters on {cluster.kind} listed, exported, resent to one group, one to all; {name}"
    )


async def _are_dead(admin: Admin, group: str) -> bool:
    route = await admin.connection.find_route(DLQ_PREFIX + group)
    return route is not None and await admin.dead_letters.count(group) == LETTERS


async def use_transactions(cluster: Cluster, store: Path, name: str) -> None:
    """Transactions are listed alike from the broker and from its commit log; one is resumed, one discarded."""
    desk, topic = Desk(cluster), f"Tools-{name}"
    async with Admin(cluster.name_server) as admin:
        await send(admin, topic, 1)
        halves = {f"{name}-{number}": await prepare(admin, topic, f"{name}-{number}") for number in range(2 * DECIDED)}
        expected = {}
        for number, (label, half) in enumerate(halves.items()):
            await decide(admin, half, commit=number % 2 == 0)
            expected[label] = "committed" if number % 2 == 0 else "rolled back"
        await prepare(admin, topic, f"{name}-lost")
        await wait_for_state(admin, f"{name}-lost", State.GIVEN_UP)
        assert await _list_states(desk, name) == {f"{name}-lost": "given up"}
        expected[f"{name}-lost"] = "given up"
        assert await _list_states(desk, name, "--state", "all") == expected
        assert await _list_states(desk, name, "--state", "all", "--store", str(store)) == expected

        def check(message: Message) -> Decision:
            return Decision.COMMIT if message.transaction_id == f"{name}-lost" else Decision.UNKNOWN

        async with TransactionalProducer(cluster.name_server, group=TRANSACTION_GROUP, check=check) as producer:
            await producer.send(topic, b"hello")
            await producer._session.heartbeat()
            (deed,) = await desk.run("txn", "resume", f"{name}-lost", "-o", "json")
            assert deed["outcome"] == "resumed"
            await wait_for_state(admin, f"{name}-lost", State.COMMITTED)
        await prepare(admin, topic, f"{name}-open")
        (deed,) = await desk.run("txn", "discard", f"{name}-open", "--yes", "-o", "json")
        assert deed["outcome"] == "discarded", deed
        expected |= {f"{name}-lost": "committed", f"{name}-open": "rolled back"}
        assert await _list_states(desk, name, "--state", "all") == expected
        assert await _list_states(desk, name, "--state", "all", "--store", str(store)) == expected
        bodies = await read_bodies(admin, topic)
        assert sum(body.startswith(b"half") for body in bodies) == DECIDED + 1
    note_figures(
        f"tools: {len(expected)} transactions on {cluster.kind} told alike by the broker and by its commit log; {name}"
    )


async def _list_states(desk: Desk, name: str, *arguments: str) -> dict[str, str]:
    rows = await desk.run("txn", "list", *arguments, "-o", "json")
    return {row["message_id"]: row["state"] for row in rows if row["message_id"].startswith(f"{name}-")}
