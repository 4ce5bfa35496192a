"""Options that several commands share: which brokers, which times, which names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from eruca._cli.completing import suggest_brokers, suggest_clusters, suggest_groups, suggest_topics
from eruca._cli.output import parse_time
from eruca._wire.names import check_group, check_topic

Function = TypeVar("Function", bound=Callable[..., Any])

_DIGITS_MAX = 9


def add_topic_argument(function: Function) -> Function:
    """Add the argument TOPIC to a command; the name is checked."""
    return click.argument("topic", shell_complete=suggest_topics, callback=lambda _c, _p, text: check_topic(text))(
        function
    )


def add_group_argument(function: Function) -> Function:
    """Add the argument GROUP to a command; the name is checked."""
    return click.argument("group", shell_complete=suggest_groups, callback=lambda _c, _p, text: check_group(text))(
        function
    )


def add_place_options(function: Function) -> Function:
    """Add `--broker` (repeated: `brokers`) and `--cluster` to a command that changes all masters by default."""
    function = click.option(
        "--cluster", metavar="NAME", shell_complete=suggest_clusters, help="Only on brokers of this cluster."
    )(function)
    return click.option(
        "-b",
        "--broker",
        "brokers",
        metavar="NAME",
        multiple=True,
        shell_complete=suggest_brokers,
        callback=lambda _context, _parameter, names: list(names) or None,
        help="Only on this broker; may be repeated.",
    )(function)


def add_one_place_options(function: Function) -> Function:
    """Add `--broker` (one name, or an address for a slave) and `--cluster` to a command."""
    function = click.option(
        "--cluster", metavar="NAME", shell_complete=suggest_clusters, help="Only brokers of this cluster."
    )(function)
    return click.option(
        "-b",
        "--broker",
        metavar="NAME",
        shell_complete=suggest_brokers,
        help="Only this broker: its name, or HOST:PORT for a slave.",
    )(function)


def add_time_options(what: str) -> Callable[[Function], Function]:
    """Add `--from-time` and `--to-time` as `since` and `until` to a command."""

    def decorate(function: Function) -> Function:
        function = click.option(
            "--to-time", "until", type=parse_time, metavar="TIME", help=f"Only those {what} at this time or earlier."
        )(function)
        return click.option(
            "--from-time",
            "since",
            type=parse_time,
            metavar="TIME",
            help=f"Only those {what} at this time or later: 2026-11-15T07:21:06.",
        )(function)

    return decorate


def parse_place(text: str) -> tuple[str | None, int]:
    """Read a queue: a number, or the name of a broker, a colon and a number."""
    broker, _, number = text.rpartition(":")
    if not number.isdecimal() or len(number) > _DIGITS_MAX:
        raise click.BadParameter(f"{text!r} is not a queue: N or BROKER:N, for example broker-a:0")
    return broker or None, int(number)


def parse_full_place(text: str) -> tuple[str, int]:
    """Read a queue with the name of its broker."""
    broker, number = parse_place(text)
    if broker is None:
        raise click.BadParameter(f"{text!r}: expected BROKER:N, for example broker-a:0", param_hint="--queue")
    return broker, number
