"""Options of running servers: how they are shown, without secrets, and how KEY=VALUE is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from eruca._cli.completing import suggest_options
from eruca._cli.optionlist import find_near_keys, list_options
from eruca._cli.viewing import View, view_list
from eruca._ground.config import HIDDEN
from eruca.admin import Changed, Listed, ServerConfig, Undo
from eruca.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])

# Names of options whose values are never shown, also those of servers of other makes.
_SECRET = re.compile(r"secret|password|passwd|token|credential|privatekey", re.IGNORECASE)


class _Line(msgspec.Struct, frozen=True):
    where: str
    key: str
    value: str


def is_secret(key: str) -> bool:
    """Return whether the value of an option must not be shown."""
    return any(facts.key == key and facts.info.secret for facts in list_options()) or bool(_SECRET.search(key))


def hide_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with the values of secrets replaced."""
    return {key: HIDDEN if value and is_secret(key) else value for key, value in options.items()}


def view_configs(listed: Listed[ServerConfig], keys: Sequence[str]) -> View:
    """Return the view of the options of servers: all, or those with some names."""
    wanted = {key.lower() for key in keys}
    configs = [
        msgspec.structs.replace(
            row,
            options={
                key: value
                for key, value in sorted(hide_secrets(row.options).items())
                if not wanted or key.lower() in wanted
            },
        )
        for row in listed.items
    ]
    lines = [_Line(row.where, key, value) for row in configs for key, value in row.options.items()]
    shown_keys = {line.key.lower() for line in lines}
    # Servers that do not answer may have it.
    missing = [_explain_missing(key) for key in keys if key.lower() not in shown_keys] if listed.items else []
    shown = view_list(lines, ["on", "key", "value"], lambda line: (line.where, line.key, line.value), empty="")
    return View(
        value=configs if lines else [],
        draw=shown.draw,
        is_list=True,
        problems=listed.problems,
        cut=listed.cut,
        empty="; ".join(missing) or "no server answers",
        warnings=missing if lines else (),
        is_wrong=bool(missing),
    )


def _explain_missing(key: str) -> str:
    near = [each for each in find_near_keys(key) if each.lower() != key.lower()]
    return f"no server reports an option {key}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def add_settings_argument(function: Function) -> Function:
    """Add the argument KEY=VALUE..., as `options`, to a command."""
    return click.argument(
        "options",
        metavar="KEY=VALUE...",
        nargs=-1,
        required=True,
        shell_complete=suggest_options,
        callback=lambda _context, _parameter, texts: parse_settings(texts),
    )(function)


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Read KEY=VALUE words. Raises ConfigError for a word of another form, and for an option that is set twice."""
    options: dict[str, str] = {}
    for text in settings:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            # What follows the name may be a secret that is set with a wrong separator.
            name = re.match(r"[\w.]*", text)
            raise ConfigError(f"{name[0] if name else ''}: expected KEY=VALUE", hint="for example fileReservedTime=48")
        if key in options:
            raise ConfigError(f"{key} is set twice")
        options[key] = value
    return options


def hide_changes(changed: Changed[dict[str, str]]) -> Changed[dict[str, str]]:
    """Return changes without secrets. A secret cannot be set back: servers do not return it."""
    changes = [
        msgspec.structs.replace(
            row,
            before=None if row.before is None else hide_secrets(row.before),
            after=None if row.after is None else hide_secrets(row.after),
        )
        for row in changed.changes
    ]
    undo = []
    for call in changed.undo:
        options = {key: value for key, value in call.arguments["options"].items() if not is_secret(key)}
        if options:
            undo.append(Undo(method=call.method, arguments={**call.arguments, "options": options}))
    return msgspec.structs.replace(changed, changes=changes, undo=undo)
