"""`eruca mcp` as an assistant uses it: a process, driven by the client of the official SDK over stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.context import ClientRequestContext
from mcp.client.stdio import stdio_client
from mcp.types import ElicitRequestParams, ElicitResult, TextContent, Tool

from eruca import ClientOptions, Message
from eruca._mcp.bounds import BYTES_MAX
from tests.admin.stage import Stage, open_stage, poll
from tests.integration.cli.commands import Commands
from tests.integration.cli.upprocess import make_command, make_environment
from tests.interop.brokers import Cluster

LOOKING = {
    *("overview", "doctor", "brokers", "config", "topics", "topic", "groups", "group", "lag"),
    *("find_messages", "dead_letters", "transactions", "list_plans"),
}
PLANNING = {
    *("plan_reset_offsets", "plan_shift_offsets", "plan_resend_dead_letters", "plan_create_topic"),
    *("plan_update_topic", "plan_update_group", "plan_broker_config"),
}


class User:
    """The person in front of the assistant, who is asked before a plan is carried out."""

    def __init__(self) -> None:
        self.agrees = False
        self.questions: list[str] = []

    async def answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Answer the question whether to go on."""
        self.questions.append(params.message)
        return ElicitResult(action="accept", content={"agree": self.agrees})


class Assistant:
    """A client of a running `eruca mcp`."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def list_tools(self) -> dict[str, Tool]:
        """The tools by name."""
        return {tool.name: tool for tool in (await self._session.list_tools()).tools}

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, which must succeed."""
        text = await self._call(tool, arguments, is_error=False)
        assert len(text.encode()) <= BYTES_MAX
        answer = json.loads(text)
        assert isinstance(answer, dict)
        return answer

    async def fail(self, tool: str, **arguments: Any) -> str:
        """Call a tool, which must refuse; returns why."""
        return await self._call(tool, arguments, is_error=True)

    async def _call(self, tool: str, arguments: dict[str, Any], *, is_error: bool) -> str:
        result = await self._session.call_tool(tool, arguments)
        (content,) = result.content
        assert isinstance(content, TextContent)
        assert bool(result.is_error) == is_error, content.text
        return content.text


@pytest.fixture
def errors(tmp_path: Path) -> Iterator[TextIO]:
    """What the processes of a test write to stderr: nothing."""
    with open(tmp_path / "mcp.log", "w+", encoding="utf-8") as file:
        yield file
        file.seek(0)
        assert file.read() == ""


@asynccontextmanager
async def open_assistant(
    cluster: Cluster, errors: TextIO, *flags: str, user: User | None = None
) -> AsyncIterator[Assistant]:
    """Start `eruca mcp`, and connect; with a user, the client can ask questions."""
    command, *words = make_command("mcp", "-n", cluster.name_server, *flags)
    server = StdioServerParameters(command=command, args=words, env=make_environment())
    answer = None if user is None else user.answer
    async with (
        stdio_client(server, errlog=errors) as (read, write),
        ClientSession(read, write, elicitation_callback=answer) as session,
    ):
        told = await session.initialize()
        assert told.server_info.name == "eruca" and "never instructions" in (told.instructions or "")
        yield Assistant(session)


@asynccontextmanager
async def open_case(cluster: Cluster, word: str) -> AsyncIterator[Stage]:
    options = ClientOptions(call_timeout=15.0, route_interval=0.5)
    async with open_stage(cluster.kind, "async", cluster.name_server, f"mcp-{word}", options) as stage:
        yield stage


async def test_its_tools(cluster: Cluster, errors: TextIO) -> None:
    async with open_assistant(cluster, errors) as assistant:
        tools = await assistant.list_tools()
    assert tools.keys() == LOOKING | PLANNING | {"apply_plan"}
    for name, tool in tools.items():
        assert tool.description and tool.annotations is not None
        assert tool.annotations.read_only_hint == (name != "apply_plan"), name
        assert tool.annotations.destructive_hint == (name == "apply_plan"), name


async def test_why_a_group_is_behind(cluster: Cluster, errors: TextIO) -> None:
    """First nobody consumes; then a member does not get past its first message."""
    async with open_case(cluster, "behind") as stage, open_assistant(cluster, errors) as assistant:
        topic, group, seen = await stage.create_topic(queues=1), stage.name("billing"), list[Message]()
        receipts = await stage.send(topic, 5)
        await stage.raw.offsets.reset(group, topic, "earliest")

        found = await assistant.ask("lag", group=group)
        (queue,) = [row for row in found["queues"] if row["topic"] == topic]
        assert (found["messages"], queue["lag"], queue["offset"], queue["end"]) == (5, 5, 0, 5)
        assert found["longest_wait"] >= 0
        assert [row["group"] for row in (await assistant.ask("lag", topic=topic))["queues"]] == [group]
        assert group in {row["group"] for row in (await assistant.ask("lag"))["queues"]}
        assert {"group": group, "lag": 5} in (await assistant.ask("groups", prefix=group))["groups"]
        overview = await assistant.ask("overview")
        assert len(overview["brokers"]) == 1 and overview["groups_furthest_behind"]
        absent = await assistant.ask("group", group=group)
        assert [finding["id"] for finding in absent["findings"]] == ["group-absent"] and absent["lag"] == 5
        doctor = await assistant.ask("doctor", at_least="warning")
        assert not doctor["healthy"] and f"group {group}" in {row["where"] for row in doctor["findings"]}

        async with stage.member(group, topic, seen, hangs=True, drain=0):
            stuck = await poll(
                lambda: assistant.ask("group", group=group),
                lambda told: bool(seen) and any(row["owner"] for row in told["queues"]),
            )
            (row,) = [row for row in stuck["queues"] if row["topic"] == topic]
            assert row["stuck_on"]["message_id"] == receipts[0].message_id and row["lag"] == 5
            assert row["owner"] == stuck["members"][0]["client_id"]
        found = await assistant.ask("find_messages", topic=topic, key=stage.name("key0"))
        assert [row["message_id"] for row in found["messages"]] == [receipts[0].message_id]
        assert "body" not in found["messages"][0] and any("--show-bodies" in note for note in found["notes"])
        assert "no broker knows a group" in await assistant.fail("group", group=stage.name("nobody"))


async def test_without_the_flag_nothing_changes(cluster: Cluster, errors: TextIO) -> None:
    """A plan is only shown, with the command that carries it out."""
    user = User()
    user.agrees = True
    async with open_case(cluster, "reading") as stage, open_assistant(cluster, errors, user=user) as assistant:
        topic, group = await stage.create_topic(), stage.name("billing")
        await stage.send(topic, 4)
        await stage.raw.offsets.reset(group, topic, "earliest")
        plan = await assistant.ask("plan_reset_offsets", group=group, topic=topic, to="latest")
        assert plan["outcomes"] == {"planned": 2} and any("read-only" in note for note in plan["notes"])
        refused = await assistant.fail("apply_plan", plan_id=plan["plan_id"], confirm=group)
        assert "read-only" in refused and "--allow-changes" in refused and user.questions == []
        assert (await assistant.ask("lag", group=group))["messages"] == 4
        # The command of the plan is one.
        program, *words = shlex.split(plan["command"])
        assert program == "eruca"
        await asyncio.to_thread(Commands(cluster.name_server).run, *words, "--yes")
        assert (await assistant.ask("lag", group=group))["messages"] == 0


async def test_a_change_is_planned_confirmed_and_made_once(cluster: Cluster, errors: TextIO) -> None:
    async with (
        open_case(cluster, "changing") as stage,
        open_assistant(cluster, errors, "--allow-changes") as assistant,
    ):
        topic, group, fresh = await stage.create_topic(), stage.name("billing"), stage.name("fresh")
        await stage.send(topic, 4)
        await stage.raw.offsets.reset(group, topic, "earliest")
        plan = await assistant.ask("plan_reset_offsets", group=group, topic=topic, to="latest")
        assert [(move["before"], move["after"]) for move in plan["preview"]["moves"]] == [(0, 2), (0, 2)]
        assert [row["plan_id"] for row in (await assistant.ask("list_plans"))["plans"]] == [plan["plan_id"]]
        assert (await assistant.ask("lag", group=group))["messages"] == 4
        assert "is not confirmed" in await assistant.fail("apply_plan", plan_id=plan["plan_id"], confirm="yes")
        applied = await assistant.ask("apply_plan", plan_id=plan["plan_id"], confirm=plan["confirm_with"])
        assert applied["outcomes"] == {"written": 2} and applied["undo"]
        assert (await assistant.ask("lag", group=group))["messages"] == 0
        assert "has been applied" in await assistant.fail("apply_plan", plan_id=plan["plan_id"], confirm=group)

        # What was planned for another state is not done.
        assert not (await stage.raw.topics.create(fresh, queues=3)).failed
        plan = await assistant.ask("plan_update_topic", topic=fresh, queues=6)
        assert not (await stage.raw.topics.update(fresh, queues=4)).failed
        assert "the state has changed" in await assistant.fail("apply_plan", plan_id=plan["plan_id"], confirm=fresh)
        plan = await assistant.ask("plan_update_topic", topic=fresh, queues=6)
        applied = await assistant.ask("apply_plan", plan_id=plan["plan_id"], confirm=fresh)
        assert applied["outcomes"] == {"done": 1}
        assert [row.settings.read_queues for row in (await stage.raw.topics.show(fresh)).brokers] == [6]


@pytest.mark.parametrize("agrees", [False, True])
async def test_a_client_that_can_ask_its_user_does(cluster: Cluster, errors: TextIO, agrees: bool) -> None:
    user = User()
    user.agrees = agrees
    async with (
        open_case(cluster, f"asking-{agrees}") as stage,
        open_assistant(cluster, errors, "--allow-changes", user=user) as assistant,
    ):
        topic = stage.name("fresh")
        plan = await assistant.ask("plan_create_topic", topic=topic, queues=3)
        call = assistant.ask if agrees else assistant.fail
        told = await call("apply_plan", plan_id=plan["plan_id"], confirm=topic)
        assert len(user.questions) == 1 and plan["command"] in user.questions[0]
        if not agrees:
            assert "the user did not agree" in str(told)
        names = [row.name for row in (await stage.raw.topics.list(topic)).items]
        assert names == ([topic] if agrees else [])
