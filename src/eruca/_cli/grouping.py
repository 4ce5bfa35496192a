"""How commands are grouped: whole sentences in their lists, and groups that start a server without a subcommand.

In the help of a command, the options that lead to a cluster come after its own.
"""

from __future__ import annotations

import click

from eruca._cli.connecting import ClusterOption
from eruca.errors import ErucaError

# The first sentence of a command's help, however long: the list wraps it.
_SUMMARY_CHARS_MAX = 300
# Flags that are longer have a line of their own, as click writes it.
_FLAGS_CHARS_MAX = 30


class StrictCommand(click.Command):
    """A command for which an argument that cannot be used is a command line that is not valid."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; one of our errors becomes one of click's, with its exit status."""
        try:
            return super().parse_args(ctx, args)
        except ErucaError as error:
            raise click.UsageError(" ".join(str(error).split()), ctx) from error


class SectionedCommand(StrictCommand):
    """A command whose help has its own options first, and then those that lead to a cluster."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both lists."""
        own, cluster = list[tuple[str, str]](), list[tuple[str, str]]()
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                (cluster if isinstance(parameter, ClusterOption) else own).append(record)
        # Both lists have their second column in the same place.
        width = min(_FLAGS_CHARS_MAX, max(len(flags) for flags, _ in own + cluster))
        for title, rows in (("Options", own), ("Cluster", cluster)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(flags.ljust(width), text) for flags, text in rows])


class CommandGroup(click.Group):
    """A group whose list of commands is not cut in the middle of a sentence."""

    command_class = SectionedCommand

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(_SUMMARY_CHARS_MAX)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class ServerGroup(CommandGroup):
    """A group that runs its command `start` if it gets options only: `eruca broker -c broker.conf`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `start` unless a subcommand or help is asked for."""
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        if not args or (args[0].startswith("-") and not asks_for_help):
            args = ["start", *args]
        return super().parse_args(ctx, args)
