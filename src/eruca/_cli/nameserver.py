"""`eruca nameserver`: start a name server, and look after those that run."""

from __future__ import annotations

import click

from eruca._cli.changing import Changing, add_change_options
from eruca._cli.completing import suggest_keys
from eruca._cli.grouping import CommandGroup, ServerGroup
from eruca._cli.nameserverkv import kv
from eruca._cli.serve import nameserver as start
from eruca._cli.serverconfig import add_settings_argument, hide_changes, view_configs
from eruca._cli.viewing import View, Viewing, add_view_options, view_list
from eruca.admin import Admin, Changed, NameServer


@click.group(cls=ServerGroup)
def nameserver() -> None:
    """Start a name server; list and configure those that run, and their keys and values.

    With options only it starts one: `eruca nameserver --listen-port 9877` is `eruca nameserver start --listen-port
    9877`. The other commands ask and change every name server of -n.

    \b
    Examples:
      eruca nameserver                        start one on 127.0.0.1:9876
      eruca nameserver list                   who answers, and what it knows
      eruca nameserver config get
      eruca nameserver kv list ORDER_TOPIC_CONFIG
    """


nameserver.add_command(start, "start")
nameserver.add_command(kv)


@nameserver.command("list")
@add_view_options
def list_(view: Viewing) -> None:
    """List the name servers, whether each answers, and how many brokers and topics it knows.

    The exit status is 3 if one does not answer, or if they know different numbers.

    \b
    Examples:
      eruca nameserver list
      eruca nameserver list -n "10.0.0.1:9876;10.0.0.2:9876"
    """

    async def ask(admin: Admin) -> View:
        listed = await admin.nameservers.list()
        columns = ["name server", "answers", ">brokers", ">topics", "problem"]
        shown = view_list(listed, columns, _draw_server, empty="")
        known = {(row.brokers, row.topics) for row in listed.items if row.answers}
        warnings = [f"{row.address} does not answer" for row in listed.items if not row.answers]
        if len(known) > 1:
            warnings.append("the name servers know different brokers or topics; `eruca route compare` shows a topic")
        return View(value=shown.value, draw=shown.draw, is_list=True, problems=listed.problems, warnings=warnings)

    view.show(ask)


def _draw_server(row: NameServer) -> tuple[str, ...]:
    return (row.address, "yes" if row.answers else "no", str(row.brokers), str(row.topics), row.problem)


@nameserver.group(cls=CommandGroup)
def config() -> None:
    """The options of running name servers. `eruca config explain KEY` says what an option does.

    \b
    Examples:
      eruca nameserver config get
      eruca nameserver config set orderMessageEnable=true
    """


@config.command("get")
@click.argument("keys", metavar="[KEY]...", nargs=-1, shell_complete=suggest_keys)
@add_view_options
def get_(view: Viewing, keys: tuple[str, ...]) -> None:
    """Show the options in force on each name server, or those named KEY. Secrets are hidden.

    \b
    Examples:
      eruca nameserver config get
      eruca nameserver config get orderMessageEnable -o json | jq .options
    """

    async def ask(admin: Admin) -> View:
        return view_configs(await admin.nameservers.config(), keys)

    view.show(ask)


@config.command("set")
@add_settings_argument
@add_change_options()
def set_(change: Changing, options: dict[str, str]) -> None:
    """Change options of every name server while it runs.

    \b
    Examples:
      eruca nameserver config set orderMessageEnable=true
    """

    async def work(admin: Admin, dry_run: bool) -> Changed[dict[str, str]]:
        return hide_changes(await admin.nameservers.set_config(options, dry_run=dry_run))

    change.apply(work)
