"""`eruca console`: the web page for one or more clusters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eruca._admin.admin import Admin
from eruca._cli.connecting import add_nameserver_option, make_options, name_cluster, parse_nameservers
from eruca._cli.optionlist import Role
from eruca._cli.running import Service, run_services
from eruca._cli.saying import say
from eruca._cli.settings import gather_settings, is_loopback
from eruca._cli.undoing import list_undo
from eruca._console.identity.options import IdentityOptions
from eruca._console.options import ConsoleOptions
from eruca._console.watching.options import WatchingOptions
from eruca._net.tlsoptions import TlsMode, TlsOptions
from eruca._observe.logs import LogLevel, set_up_logs
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca._console.app import Console
    from eruca._console.clusters import Cluster

_NAME_CHARS_MAX = 60


@click.command()
@click.option(
    "--cluster",
    "others",
    metavar="NAME=HOST:PORT",
    multiple=True,
    help="A cluster and its name servers, instead of -n; may be repeated.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="The port of the page [default: 8080].")
@click.option("--host", metavar="ADDRESS", help="The address to bind [default: 127.0.0.1].")
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where users, the audit log and the history are kept [default: eruca-console].",
)
@click.option(
    "-c",
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file with options, such as consoleListenPort=8080.",
)
@click.option(
    "--option",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any option by its name; overrides file and environment. `eruca config list` lists them.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow an address that other machines can reach without TLS: whoever is in between reads passwords.",
)
@click.option(
    "--reset-password", "reset", metavar="USER", help="Give a user a new one-time password, print it, then stop."
)
@click.option("-p", "--print-config", is_flag=True, help="Print all options and where each was set, then stop.")
@add_nameserver_option
def console(
    nameservers: str,
    others: Sequence[str],
    port: int | None,
    host: str | None,
    data: Path | None,
    config: Path | None,
    overrides: Sequence[str],
    insecure: bool,
    reset: str | None,
    print_config: bool,
) -> None:
    """Serve the web console: topics, groups, messages, alarms, for Eruca and Java clusters.

    Needs the extra `console`: pip install "eruca[console]". The account of --account is the one it uses in all
    clusters. The first start prints a one-time password for the user `admin`.

    \b
    Examples:
      eruca console -n 10.0.0.1:9876
      eruca console --cluster paris=10.0.0.1:9876 --cluster rome=10.1.0.1:9876
      eruca console --host 10.0.0.5 --option tls.server.mode=enforcing
      eruca console -n 10.0.0.1:9876 -c console.conf
      eruca console --reset-password admin
    """
    app, cluster_type, renew_password = import_console()
    flags = {"consoleListenPort": port, "consoleBindAddress": host, "consoleDirectory": data}
    settings = gather_settings(
        Role.CONSOLE,
        config=config,
        environment=os.environ,
        overrides=overrides,
        flags={key: None if value is None else str(value) for key, value in flags.items()},
    )
    options, identity = settings.build(ConsoleOptions), settings.build(IdentityOptions)
    watching, tls = settings.build(WatchingOptions), settings.build(TlsOptions)
    require_encryption(options.bind, tls, insecure=insecure)
    if print_config:
        from eruca._cli.serve import print_settings

        print_settings(settings, "table", options, identity, watching, tls)
        return
    set_up_logs(LogLevel.WARNING, as_json=False)
    if reset is not None:
        password = asyncio.run(renew_password(Path(options.directory), reset))
        say(f"log in as {reset} with the one-time password {password}")
        return
    for note in settings.notes:
        say(note)
    found: list[Cluster] = []
    if not others:
        found.append(cluster_type("cluster", Admin(options=make_options(nameservers)), tuple(name_cluster())))
    for text in others:
        name, _, addresses = text.partition("=")
        if not name or not addresses or len(name) > _NAME_CHARS_MAX or not name.isprintable() or "/" in name:
            raise ConfigError(f"--cluster {text}: expected NAME=HOST:PORT")
        client = make_options(parse_nameservers(addresses))
        found.append(cluster_type(name, Admin(options=client), ("-n", addresses)))
    server = app(options, found, identity=identity, tls=tls, watching=watching, list_undo=list_undo)
    hint = f"is another console running? Choose another port: --port {options.port + 1}"
    run_services([Service(server, hint)], lambda: announce_console(server))


def announce_console(server: Console) -> None:
    """Say where the console is, and after the first start the one-time password. It is shown here and nowhere else."""
    say(f"the console is at {server.address}")
    if server.first_password is not None:
        say(f"log in as admin with the one-time password {server.first_password}")


def require_encryption(bind: str, tls: TlsOptions, *, insecure: bool) -> None:
    """Raise ConfigError for an address that other machines can reach, unless all connections use TLS, or `insecure`."""
    if tls.mode is not TlsMode.ENFORCING and not insecure and not is_loopback(bind):
        raise ConfigError(
            f"the console would listen on {bind}, which other machines can reach, without TLS: "
            "whoever is in between could read passwords",
            hint="--option tls.server.mode=enforcing; --insecure is for a proxy in front that has TLS",
        )


def import_console() -> tuple[type[Console], type[Cluster], Callable[[Path, str], Coroutine[Any, Any, str]]]:
    """Return the classes of the console, and what makes a one-time password. Raises ConfigError without the extra."""
    try:
        from eruca._console.app import Console
        from eruca._console.clusters import Cluster
        from eruca._console.identity.resetting import renew_password
    except ImportError as error:
        raise ConfigError(f"the console needs a package: {error}", hint='pip install "eruca[console]"') from error
    return Console, Cluster, renew_password
