"""Command lines of `eruca` that something shows to people: whether our own command line would accept them."""

from __future__ import annotations

import shlex

import click

from eruca._cli.main import main


def find_fault(line: str) -> str | None:
    """What the command line would refuse in a command; None if it would run it. Files need not be there."""
    program, *words = shlex.split(line)
    if program != "eruca":
        return f"{line}: is not a command of eruca"
    try:
        _parse(words)
    except click.ClickException as error:
        return f"{line}: {error.format_message()}"
    return None


def _parse(words: list[str]) -> None:
    context = main.make_context("eruca", words)
    while isinstance(command := context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            assert command.invoke_without_command, f"{command.name} lacks a subcommand"
            return
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        try:
            context = found.make_context(name, rest, parent=context)
        except click.BadParameter as error:
            if isinstance(error.param, click.Parameter) and isinstance(error.param.type, click.Path | click.File):
                return
            raise
