"""How commands are grouped: whole sentences in their lists, and groups that start a server without a subcommand."""

from __future__ import annotations

import click

# The first sentence of a command's help, however long: the list wraps it.
_SUMMARY_CHARS_MAX = 300


class CommandGroup(click.Group):
    """A group whose list of commands is not cut in the middle of a sentence."""

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
