"""`eruca mcp`: a door for assistants."""

from __future__ import annotations

import click

from eruca._admin.admin import Admin
from eruca._cli.connecting import add_nameserver_option, make_options
from eruca._cli.grouping import SectionedCommand
from eruca._cli.running import run_loop
from eruca.errors import ConfigError


@click.command(cls=SectionedCommand)
@click.option("--allow-changes", is_flag=True, help="Let the assistant apply plans. Without it nothing is changed.")
@click.option("--show-bodies", is_flag=True, help="Show bodies and properties of messages, the first 500 characters.")
@add_nameserver_option
def mcp(allow_changes: bool, show_bodies: bool, nameservers: str) -> None:
    """Serve the Model Context Protocol on stdin and stdout, so that an assistant can look at the cluster.

    The assistant starts this command. It can look at brokers, topics, groups, lag and messages, and plan changes; with
    --allow-changes it can apply a plan after you have agreed. Needs the extra `mcp`: pip install "eruca[mcp]".

    \b
    Examples:
      eruca mcp -n 10.0.0.1:9876
      eruca mcp --allow-changes --account tools.yml
    """
    try:
        from eruca._mcp.server import serve
    except ImportError as error:
        raise ConfigError(f"eruca mcp needs a package: {error}", hint='pip install "eruca[mcp]"') from error

    async def run() -> None:
        async with Admin(options=make_options(nameservers)) as admin:
            await serve(admin, allow_changes=allow_changes, show_bodies=show_bodies)

    run_loop(run())
