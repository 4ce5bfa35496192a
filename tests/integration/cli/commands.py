"""Runs commands in this process against a broker, as a shell would: statuses, JSON, and what undoes a change."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from eruca._cli.main import main
from tests.integration.admin.staging import wait_until


class Commands:
    """The `eruca` command for one cluster."""

    def __init__(self, nameserver: str, *options: str) -> None:
        self.nameserver = nameserver
        self._options = options

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Result:
        """Run a command, which must end with a status and never with a traceback."""
        where = ["-n", self.nameserver, *self._options]
        result = CliRunner().invoke(main, [*arguments, *where], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, (arguments, result.exit_code, result.output, result.stderr)
        return result

    def rows(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """Return the rows of a command that lists."""
        return [json.loads(line) for line in self.run(*arguments, "-o", "json", code=code).stdout.splitlines()]

    def document(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Return the document of a command that shows one thing, or that changes something."""
        found = json.loads(self.run(*arguments, "-o", "json", code=code).stdout)
        assert isinstance(found, dict)
        return found

    def change(self, *arguments: str) -> dict[str, Any]:
        """Change something without being asked, if the command would ask."""
        return self.document(*arguments, *self._say_yes(arguments))

    def undo(self, changed: dict[str, Any]) -> None:
        """Run the commands that undo a change, as they were printed."""
        assert changed["undo"]
        for line in changed["undo"]:
            program, *words = shlex.split(line)
            where = ["-n", self.nameserver, *self._options]
            assert program == "eruca" and words[-len(where) :] == where, line
            self.run(*words[: -len(where)], *self._say_yes(words))

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Run commands until a condition holds; that it never does is an error."""

        async def ask() -> bool:
            # Beside this loop, because a command has its own.
            return await asyncio.to_thread(holds)

        asyncio.run(wait_until(ask, what))

    def _say_yes(self, words: tuple[str, ...] | list[str]) -> list[str]:
        command: Any = main
        for word in words:
            found = command.get_command(None, word) if hasattr(command, "get_command") else None
            command = found or command
        return ["--yes"] if "--yes" in [flag for parameter in command.params for flag in parameter.opts] else []

    def check_change(self, look: Callable[[], Any], *arguments: str) -> dict[str, Any]:
        """A change: a dry run changes nothing, the command does, and its undo restores what was before."""
        before = look()
        planned = self.document(*arguments, "--dry-run")
        rows = planned["changes"] if "changes" in planned else planned["moves"]
        assert {row["outcome"] for row in rows} <= {"planned", "unchanged"}
        assert planned["undo"] == []
        assert look() == before
        changed = self.change(*arguments)
        assert look() != before
        self.undo(changed)
        assert look() == before
        return changed
