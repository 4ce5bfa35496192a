"""Replay with any tool and any system: groups that go back, skip, or continue from another group's offsets.

A case gets a running system and a tool. Each has its own topic with an old and a new half, a good moment apart, and a
group that has consumed all of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eruca import Consumer, Message, Offsets, Producer
from eruca._wire.bodies import MessageQueue
from eruca.admin import Admin
from tests.clients.members import JavaMember, MemberSettings
from tests.figures import note_figures
from tests.integration.admin.staging import wait_until
from tests.integration.cli.upprocess import run_here
from tests.interop.brokers import Cluster
from tests.interop.javapeer import JavaProgram, Peer

HALF = 12
OLD = [f"old {number}" for number in range(HALF)]
NEW = [f"new {number}" for number in range(HALF)]
# The pause between the halves, longer than a send takes, so that a search for the nearest message finds the right one.
GAP_MS = 1500


class Tool(Protocol):
    """Whatever an operator moves groups with."""

    async def reset(self, group: str, topic: str, time_ms: int) -> None:
        """To a time."""

    async def skip(self, group: str, topic: str) -> None:
        """To the end."""

    async def clone(self, source: str, target: str, topic: str) -> None:
        """To where another group is."""


@dataclass(frozen=True)
class OurTool:
    """`eruca offset`."""

    cluster: Cluster

    async def reset(self, group: str, topic: str, time_ms: int) -> None:
        """To a time."""
        await self._run("reset", group, topic, "--to", str(time_ms))

    async def skip(self, group: str, topic: str) -> None:
        """To the end."""
        await self._run("skip", group, topic)

    async def clone(self, source: str, target: str, topic: str) -> None:
        """To where another group is."""
        await self._run("clone", source, target, "--topic", topic)

    async def _run(self, *arguments: str) -> None:
        words = ["offset", *arguments, "--yes", "-o", "json", "-n", self.cluster.name_server]
        done = await asyncio.to_thread(run_here, *words)
        assert done.returncode == 0, done.stderr
        assert {move["outcome"] for move in json.loads(done.stdout)["moves"]} <= {"told", "written"}


@dataclass(frozen=True)
class MqAdminTool:
    """The official `mqadmin`."""

    cluster: Cluster
    program: JavaProgram

    async def reset(self, group: str, topic: str, time_ms: int) -> None:
        """To a time."""
        await self._run("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(time_ms))

    async def skip(self, group: str, topic: str) -> None:
        """To the end."""
        await self._run("skipAccumulatedMessage", "-g", group, "-t", topic)

    async def clone(self, source: str, target: str, topic: str) -> None:
        """To where another group is."""
        await self._run("cloneGroupOffset", "-s", source, "-d", target, "-t", topic)

    async def _run(self, *arguments: str) -> None:
        request = {"do": "run", "nameServer": self.cluster.name_server, "arguments": list(arguments)}
        (row,) = await asyncio.to_thread(self.program.ask, request)
        assert not row.get("error"), row


class Scene:
    """A topic with two halves, a group that has consumed them, and an admin to look with."""

    def __init__(self, cluster: Cluster, admin: Admin, name: str) -> None:
        self.cluster = cluster
        self.admin = admin
        self.topic = f"Replay-{name}"
        self.group = f"Replayers-{name}"
        # A moment before the new half, and the offsets at which it begins.
        self.moment_ms = 0
        self.begins: dict[MessageQueue, int] = {}
        self.ends: dict[MessageQueue, int] = {}

    async def fill(self) -> None:
        """Send both halves."""
        async with Producer(self.cluster.name_server, group="ReplaySenders") as producer:
            for body in OLD:
                await producer.send(self.topic, body.encode())
            await wait_until(self._has_route, f"a route of {self.topic}")
            old = time.time() * 1000
            await wait_until(lambda: _is_past(old + GAP_MS), "the gap")
            # Java's broker makes the entries of its queues a moment after the messages.
            await wait_until(lambda: self._has(HALF), f"the old half in {self.topic}")
            self.begins = await self._find_ends()
            for body in NEW:
                await producer.send(self.topic, body.encode())
        await wait_until(lambda: self._has(2 * HALF), f"all messages in {self.topic}")
        self.ends = await self._find_ends()
        times = [
            message.record.store_timestamp
            for queue, begin in self.begins.items()
            async for message in self.admin.connection.read_queue(queue, begin)
        ]
        self.moment_ms = min(times) - 1

    async def _has_route(self) -> bool:
        return await self.admin.connection.find_route(self.topic) is not None

    async def _has(self, count: int) -> bool:
        return sum((await self._find_ends()).values()) == count

    async def _find_ends(self) -> dict[MessageQueue, int]:
        reader = self.admin.connection.reader
        return {queue: max(0, await reader.find_end(queue)) for queue in await reader.list_queues(self.topic)}

    async def read_offsets(self, group: str) -> dict[MessageQueue, int]:
        """Where a group is."""
        rows = (await self.admin.offsets.show(group, self.topic)).items
        return {MessageQueue(row.broker, row.queue, row.topic): row.offset for row in rows}

    async def is_at(self, group: str, places: dict[MessageQueue, int]) -> bool:
        """Is a group there?"""
        return await self.read_offsets(group) == places

    async def consume_all(self) -> None:
        """Let the group consume everything once, and go."""
        async with Reader(self) as reader:
            await wait_until(lambda: reader.has(OLD + NEW, 1), "the first round")
            await wait_until(lambda: self.is_at(self.group, self.ends), "the offsets of the first round")


async def _is_past(time_ms: float) -> bool:
    return time.time() * 1000 > time_ms


class Reader:
    """A member of the group with our client, which counts the messages it received."""

    def __init__(self, scene: Scene) -> None:
        self.seen: Counter[str] = Counter()
        self._consumer = Consumer(
            scene.cluster.name_server, group=scene.group, start="earliest", offsets=Offsets(interval=0.2)
        )
        self._consumer.handler(scene.topic)(self._take)

    async def _take(self, message: Message) -> None:
        self.seen[message.body.decode()] += 1

    async def has(self, bodies: list[str], times: int) -> bool:
        """Whether it received each of these this often."""
        return all(self.seen[body] >= times for body in bodies)

    async def __aenter__(self) -> Reader:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.close()


# --- the cases --------------------------------------------------------------------------------------------------------


async def reset_while_away(scene: Scene, tool: Tool) -> None:
    """No member is connected: the offsets are written, and the next member begins there."""
    await scene.consume_all()
    await tool.reset(scene.group, scene.topic, scene.moment_ms)
    found = await scene.read_offsets(scene.group)
    assert found == scene.begins, f"{found} and not {scene.begins}"
    async with Reader(scene) as reader:
        await wait_until(lambda: reader.has(NEW, 1), "the new half again")
        await wait_until(lambda: scene.is_at(scene.group, scene.ends), "the offsets of the second round")
        assert reader.seen == Counter(NEW)


async def reset_while_here(scene: Scene, tool: Tool) -> None:
    """An Eruca member is connected: it is told, and goes back."""
    async with Reader(scene) as reader:
        await wait_until(lambda: reader.has(OLD + NEW, 1), "the first round")
        await wait_until(lambda: scene.is_at(scene.group, scene.ends), "the offsets of the first round")
        await tool.reset(scene.group, scene.topic, scene.moment_ms)
        await wait_until(lambda: reader.has(NEW, 2), "the new half again")
        await wait_until(lambda: scene.is_at(scene.group, scene.ends), "the offsets of the second round")
        assert reader.seen == Counter(OLD + NEW + NEW)


async def skip_backlog(scene: Scene, tool: Tool) -> None:
    """Messages that a group has not consumed are skipped."""
    await scene.consume_all()
    address = scene.admin.connection.find_master(next(iter(scene.ends)).broker_name)
    for queue in scene.ends:
        await scene.admin.connection.calls.write_offset(address, scene.group, queue, 1, wait=True)
    await tool.skip(scene.group, scene.topic)
    assert await scene.read_offsets(scene.group) == scene.ends
    async with Reader(scene) as reader:
        async with Producer(scene.cluster.name_server, group="ReplaySenders") as producer:
            await producer.send(scene.topic, b"after")
        await wait_until(lambda: reader.has(["after"], 1), "what comes after")
        assert reader.seen == Counter(["after"])


async def clone_group(scene: Scene, tool: Tool) -> None:
    """Another group gets the same offsets."""
    await scene.consume_all()
    address = scene.admin.connection.find_master(next(iter(scene.ends)).broker_name)
    places = {queue: 1 + queue.queue_id % 3 for queue in scene.ends}
    for queue, place in places.items():
        await scene.admin.connection.calls.write_offset(address, scene.group, queue, place, wait=True)
    await tool.clone(scene.group, f"{scene.group}-clone", scene.topic)
    assert await scene.read_offsets(f"{scene.group}-clone") == places


Case = Callable[[Scene, Tool], Awaitable[None]]
CASES: list[Case] = [reset_while_away, reset_while_here, skip_backlog, clone_group]


async def run_case(case: Case, cluster: Cluster, tool: Tool, name: str) -> int:
    """Set up a scene and run a case in it; return how many messages there were."""
    async with Admin(cluster.name_server) as admin:
        scene = Scene(cluster, admin, name)
        await scene.fill()
        await case(scene, tool)
    note_figures(f"replay: {case.__name__} on {cluster.kind}: {2 * HALF} messages in {len(scene.ends)} queues, {name}")
    return sum(scene.ends.values())


async def reset_java_member(peer: Peer, cluster: Cluster, tool: Tool, name: str, home: Path) -> int:
    """A member with the official client is told, and goes back after ten seconds; return how many messages it got."""
    async with Admin(cluster.name_server) as admin:
        scene = Scene(cluster, admin, name)
        await scene.fill()
        settings = MemberSettings(cluster.name_server, scene.group, scene.topic)
        member = await asyncio.to_thread(JavaMember, peer, home, name, settings)

        async def has(bodies: list[str]) -> bool:
            return Counter(row.body for row in await asyncio.to_thread(member.consumed)) >= Counter(bodies)

        try:
            await wait_until(lambda: has(OLD + NEW), "the first round")
            await wait_until(lambda: scene.is_at(scene.group, scene.ends), "the offsets of the first round")
            await tool.reset(scene.group, scene.topic, scene.moment_ms)
            await wait_until(lambda: has(OLD + NEW + NEW), "the new half again")
            await wait_until(lambda: scene.is_at(scene.group, scene.ends), "the offsets of the second round")
            seen = Counter(row.body for row in await asyncio.to_thread(member.consumed))
            assert seen == Counter(OLD + NEW + NEW)
        finally:
            await asyncio.to_thread(member.kill)
    note_figures(f"replay: a Java member on {cluster.kind} went back to the new half: {HALF} of {2 * HALF}, {name}")
    return seen.total()
