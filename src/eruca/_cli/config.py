"""`eruca config`: list and explain the options of the servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from eruca._cli.completing import suggest_keys
from eruca._cli.grouping import CommandGroup
from eruca._cli.optionlist import OptionFacts, Role, find_near_keys, find_options, list_options
from eruca._cli.output import add_output_option, print_document, print_rows
from eruca._cli.tables import make_table
from eruca.errors import ConfigError

_ROLES = [role.value for role in Role]


@click.group(cls=CommandGroup)
def config() -> None:
    """Explain the options of the servers: all there are, their defaults and meaning.

    `eruca broker config` and `eruca nameserver config` read and change the options of servers that run.

    Options have the names of RocketMQ's .conf files. The same option is a key in a file (listenPort=10911), a variable
    (ERUCA_LISTEN_PORT=10911) and a flag (--listen-port 10911). Variables override files, and flags override both.

    \b
    Examples:
      eruca config explain flushDiskType
      eruca config list --mutable
      eruca broker -c broker.conf --print-config   those a start would use
      eruca broker config get flushDiskType        those of running brokers
      eruca broker config set fileReservedTime=48
    """


@config.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True, shell_complete=suggest_keys)
@add_output_option
def explain(keys: tuple[str, ...], output: str) -> None:
    """Explain an option: meaning, default, unit, bounds, whether it can change at run time, and how to set it.

    KEY can be written as in a file, as a flag or as a variable. If 3.x and 4.9 differ, both defaults are shown.

    \b
    Examples:
      eruca config explain flushIntervalCommitLog
      eruca config explain --output json ERUCA_LISTEN_PORT
    """
    found = [facts for key in keys for facts in _find(key)]
    print_document([describe_option(facts) for facts in found], output, lambda: _draw(found))


def _find(key: str) -> list[OptionFacts]:
    found = find_options(key)
    if not found:
        near = " or ".join(find_near_keys(key))
        raise ConfigError(
            f"{key} is not a known option", hint=f"did you mean {near}?" if near else "`eruca config list` lists all"
        )
    return found


@config.command(name="list")
@click.option("--role", type=click.Choice(_ROLES), help="Only options of a broker (with its store), or another role.")
@click.option("--mutable", is_flag=True, help="Only options that can be changed while the server runs.")
@click.option("--all", "with_ignored", is_flag=True, help="Also keys of 4.9 that are accepted without effect.")
@add_output_option
def list_command(role: str | None, mutable: bool, with_ignored: bool, output: str) -> None:
    """List the options: key, default, what it means.

    \b
    Examples:
      eruca config list --role nameserver
      eruca config list --all -o json | jq -r '.key'
    """
    rows = [
        facts
        for facts in list_options()
        if (role is None or facts.is_of(Role(role)))
        and (not mutable or facts.info.mutable)
        and (with_ignored or not facts.no_effect)
    ]
    if output != "table":
        print_rows(map(describe_option, rows), output, [], lambda _: [])
        return
    columns = ["key", "of", "default", "unit", "meaning"]
    print_rows(
        rows, output, columns, lambda facts: (facts.key, facts.part, facts.default, facts.info.unit, _say(facts))
    )


def _say(facts: OptionFacts) -> str:
    return f"no effect: {facts.no_effect}" if facts.no_effect else facts.info.doc


def describe_option(facts: OptionFacts) -> dict[str, Any]:
    """Return one option as plain values."""
    return {
        "key": facts.key,
        "of": facts.part,
        "meaning": _say(facts),
        "default": facts.default,
        "default_3x": facts.older or None,
        "unit": facts.info.unit or None,
        "values": facts.values,
        "mutable": facts.info.mutable,
        "effect": not facts.no_effect and not facts.coming,
        "coming": facts.coming,
        "variable": facts.environment,
        "flag": facts.flag,
    }


def _draw(found: list[OptionFacts]) -> Iterator[RenderableType]:
    for facts in found:
        unit = f" {facts.info.unit}" if facts.info.unit else ""
        rows: list[tuple[str, str | Text]] = [
            ("option of", f"{facts.part}{' (to come with the client)' if facts.coming else ''}"),
            ("meaning", _say(facts)),
            ("default", f"{facts.default or '(empty)'}{unit if facts.default else ''}"),
        ]
        if facts.older:
            rows.append(("in 3.x / 4.9", f"{facts.older}{unit} / {facts.default}{unit}"))
        rows.append(("values", f"{facts.values}{unit if facts.values != 'text' else ''}"))
        if facts.no_effect or facts.coming:
            yield make_table([facts.key, ""], rows)
            continue
        rows += [
            ("at run time", "can be changed" if facts.info.mutable else "fixed until the next start"),
            ("in a file", f"{facts.key}={facts.default}"),
            ("variable", facts.environment),
            ("flag", facts.flag),
        ]
        yield make_table([facts.key, ""], rows)
