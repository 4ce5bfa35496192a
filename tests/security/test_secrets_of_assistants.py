"""What an assistant gets from `eruca mcp`: every tool, with right and wrong arguments, at the highest log level."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TextIO

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from eruca._cli.optionlist import Role
from tests.integration.broker.serving import Serving
from tests.integration.cli.upprocess import make_command, make_environment, run_eruca
from tests.security.test_secrets import ADMIN, BROKER, MARK, find_marks, make_secrets, read_all, write_accounts

# For arguments that name something; others get a text that names nothing.
KNOWN = {"topic": "orders", "group": "g", "broker": "broker-a", "to": "earliest", "ids": [], "at_least": "info"}
SECRET_OPTIONS = {"etcdEndpoints": "http://root:x@127.0.0.1:1", "brokerSecretKey": "y" * 20, "fileReservedTime": "73"}


def choose_arguments(schema: dict[str, Any], *, known: bool) -> dict[str, Any]:
    """One value for each argument without a default."""
    chosen: dict[str, Any] = {}
    for name in schema.get("required", ()):
        kind = schema["properties"][name].get("type")
        if name == "options":
            chosen[name] = SECRET_OPTIONS
        elif kind == "integer":
            chosen[name] = 1
        else:
            chosen[name] = KNOWN.get(name, "orders") if known else "no/such thing"
    return chosen


async def ask_all(names: str, directory: Path, environment: dict[str, str], errors: TextIO) -> list[str]:
    """Call every tool, and return all that was said."""
    command, *words = make_command("-vv", "mcp", "-n", names, "--allow-changes", "--show-bodies")
    server = StdioServerParameters(command=command, args=words, cwd=directory, env=environment)
    said = []
    async with stdio_client(server, errlog=errors) as (read, write), ClientSession(read, write) as session:
        said.append(str(await session.initialize()))
        tools = (await session.list_tools()).tools
        assert len(tools) > 15
        for tool in tools:
            said.append(str(tool))
            for known in (True, False):
                arguments = choose_arguments(tool.input_schema, known=known)
                said.append(f"{tool.name}: {await session.call_tool(tool.name, arguments)}")
    return said


def test_no_tool_of_an_assistant_shows_a_secret(tmp_path: Path) -> None:
    secrets = make_secrets(Role.BROKER) | make_secrets(Role.NAMESERVER)
    secrets["ERUCA_BROKER_SECRET_KEY"] = BROKER
    accounts = tmp_path / "plain_acl.yml"
    serving = Serving(tmp_path, *write_accounts(accounts), environment=secrets)
    keys = {"ERUCA_ACCESS_KEY": "administrator", "ERUCA_SECRET_KEY": ADMIN}
    sent = run_eruca("send", "-n", serving.names, "orders", "hello", cwd=tmp_path, environment=keys)
    assert sent.returncode == 0, sent.stderr
    with open(tmp_path / "mcp.log", "w", encoding="utf-8") as errors:
        said = asyncio.run(ask_all(serving.names, tmp_path, {**make_environment(), **keys}, errors))
        wrong = {**keys, "ERUCA_SECRET_KEY": f"{MARK}-wrong"}
        refused = asyncio.run(ask_all(serving.names, tmp_path, {**make_environment(), **wrong}, errors))
    assert serving.end() == 0
    # They work, with the right of the account, and show options, but not those that are secret.
    options = next(text for text in said if text.startswith("config: ") and "fileReservedTime" in text)
    assert "etcdEndpoints" in options and "******" in options
    assert any("hello" in text for text in said if text.startswith("find_messages: "))
    assert any("Check signature failed" in text for text in refused)
    marks = [mark for text in said + refused for mark in find_marks("tool", text)]
    for path, data in read_all(tmp_path).items():
        if path != accounts.name:
            marks += find_marks(path, data)
    assert marks == []
