"""What `eruca up` shows when all is up: where everything is, and what to type next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from eruca import __version__
from eruca._access.accountfiles import TOOLS_NAME
from eruca._access.options import AccessOptions
from eruca._cli.connecting import DEFAULT_NAMESERVER


def find_account(access: AccessOptions) -> str | None:
    """Return the file that commands sign in with: the one beside the accounts, if it is there. None: no accounts."""
    if not access.enabled:
        return None
    tools = find_tools_file(access)
    return "FILE" if tools is None else shlex.quote(str(tools))


def find_tools_file(access: AccessOptions) -> Path | None:
    """Return the file beside the accounts that tools sign in with; None: there is none, or there are no accounts."""
    tools = Path(access.file).with_name(TOOLS_NAME)
    return tools if access.enabled and tools.exists() else None


def draw_panel(address: str, facts: Mapping[str, Any], data: Path, account: str | None = None) -> Panel:
    """What a newcomer wants to know: where everything is, and what to type next."""
    at = "" if address == DEFAULT_NAMESERVER else f" -n {address}"
    at += f" --account {account}" if account else ""
    others = "the account of your application" if account else "nothing else changes"
    where = _make_grid(
        ("name server", address),
        ("broker", f"{facts['broker']} ({facts['name']} of {facts['cluster']}; fast port {facts['fast']})"),
        ("data", shlex.quote(str(data))),
        *([("metrics", facts["metrics"])] if facts.get("metrics") else []),
        *([("console", facts["console"])] if facts.get("console") else []),
    )
    activate = find_activation(Path(sys.argv[0]))
    next_steps = _make_grid(
        *([("find the command", f". {shlex.quote(str(activate))}")] if activate else []),
        ("send a message", f'eruca send{at} hello "my first message"'),
        ("read it", f"eruca tail{at} hello"),
        ("wait for more", f"eruca tail{at} hello --follow"),
        ("from Java, Go, Node", f"name server address {address}, {others}"),
        ("stop", "Ctrl-C"),
    )
    return Panel(
        Group(where, Text(), Text("In another terminal:", style="bold"), next_steps),
        title=f"Eruca {__version__} is up",
        title_align="left",
        expand=False,
    )


def find_activation(program: Path) -> Path | None:
    """Return the script that puts a program of a virtual environment on the path; None: it is there, or has none."""
    found = shutil.which(program.name)
    if found is not None and os.path.realpath(found) == os.path.realpath(program):
        return None
    script = program.absolute().parent / "activate"
    return script if script.exists() else None


def _make_grid(*rows: tuple[str, str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(name, Text(text))
    return grid
