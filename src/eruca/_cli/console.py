"""`eruca console`: the web page for one or more clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eruca._admin.admin import Admin
from eruca._cli.connecting import add_nameserver_option, make_options, name_cluster, parse_nameservers
from eruca._cli.running import Service, run_services
from eruca._cli.saying import say
from eruca._cli.undoing import list_undo
from eruca._observe.logs import LogLevel, set_up_logs
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca._console.app import Console
    from eruca._console.clusters import Cluster
    from eruca._console.options import ConsoleOptions

_NAME_CHARS_MAX = 60


@click.command()
@click.option(
    "--cluster",
    "others",
    metavar="NAME=HOST:PORT",
    multiple=True,
    help="A cluster and its name servers, instead of -n; may be repeated.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port of the page.")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address to bind.")
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("eruca-console"),
    show_default=True,
    help="Where users, the audit log and the history are kept.",
)
@add_nameserver_option
def console(nameservers: str, others: Sequence[str], port: int, host: str, data: Path) -> None:
    """Serve the web console: topics, groups, messages, alarms, for Eruca and Java clusters.

    Needs the extra `console`: pip install "eruca[console]". The account of --account is the one it uses in all
    clusters.

    \b
    Examples:
      eruca console -n 10.0.0.1:9876
      eruca console --cluster paris=10.0.0.1:9876 --cluster rome=10.1.0.1:9876
    """
    app, options_type, cluster_type = import_console()
    set_up_logs(LogLevel.WARNING, as_json=False)
    found: list[Cluster] = []
    if not others:
        found.append(cluster_type("cluster", Admin(options=make_options(nameservers)), tuple(name_cluster())))
    for text in others:
        name, _, addresses = text.partition("=")
        if not name or not addresses or len(name) > _NAME_CHARS_MAX or not name.isprintable() or "/" in name:
            raise ConfigError(f"--cluster {text}: expected NAME=HOST:PORT")
        options = make_options(parse_nameservers(addresses))
        found.append(cluster_type(name, Admin(options=options), ("-n", addresses)))
    server = app(options_type(port=port, bind=host, directory=str(data)), found, list_undo=list_undo)
    hint = f"is another console running? Choose another port: --port {port + 1}"
    run_services([Service(server, hint)], lambda: say(f"the console is at {server.address}"))


def import_console() -> tuple[type[Console], type[ConsoleOptions], type[Cluster]]:
    """Return the classes of the console. Raises ConfigError without the extra."""
    try:
        from eruca._console.app import Console
        from eruca._console.clusters import Cluster
        from eruca._console.options import ConsoleOptions
    except ImportError as error:
        raise ConfigError(f"the console needs a package: {error}", hint='pip install "eruca[console]"') from error
    return Console, ConsoleOptions, Cluster
