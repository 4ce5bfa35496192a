"""`eruca console`: the web page for one or more clusters, and the same beside the servers of `eruca up`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eruca._access.options import AccessOptions
from eruca._admin.admin import Admin
from eruca._cli.connecting import add_nameserver_option, make_options, name_cluster, parse_nameservers
from eruca._cli.optionlist import Role, options_of
from eruca._cli.running import Service, run_services
from eruca._cli.saying import say
from eruca._cli.serve import add_server_options, announce, print_settings, start_logs
from eruca._cli.settings import Settings, is_loopback
from eruca._cli.undoing import list_undo
from eruca._cli.uppanel import find_tools_file
from eruca._client.accountfile import read_account_file
from eruca._client.options import ClientOptions
from eruca._console.identity.options import IdentityOptions
from eruca._console.options import NO_PORT, ConsoleOptions
from eruca._console.watching.options import WatchingOptions
from eruca._net.tls import choose_outgoing
from eruca._net.tlsoptions import TlsMode, TlsOptions
from eruca._observe.logs import LogLevel
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca._console.app import Console
    from eruca._console.clusters import Cluster

_PORT_KEY, _DIRECTORY_KEY = "consoleListenPort", "consoleDirectory"
_NAME_CHARS_MAX = 60
# What a page of one cluster calls it.
_ONLY = "default"


@add_server_options(Role.CONSOLE)
@click.option(
    "--cluster",
    "others",
    metavar="NAME=HOST:PORT",
    multiple=True,
    help="A cluster and its name servers, instead of -n; may be repeated.",
)
@click.option(
    "--reset-password", "reset", metavar="USER", help="Give a user a new one-time password, print it, then stop."
)
@add_nameserver_option
def console(
    settings: Settings,
    host: str | None,
    insecure: bool,
    print_config: bool,
    log_json: bool,
    output: str,
    nameservers: str,
    others: Sequence[str],
    reset: str | None,
) -> None:
    """Serve the web console: topics, groups, messages, alarms, for Eruca and Java clusters.

    The first start prints a one-time password. Users, the audit log and the history of lag are in ./eruca-console.
    Needs the extra `console`: pip install "eruca[console]". The account of --account is the one that the console uses
    in all clusters; who may do what in the console is decided by its own users and roles.

    \b
    Examples:
      eruca console -n 10.0.0.1:9876
      eruca console --cluster paris=10.0.0.1:9876 --cluster rome=10.1.0.1:9876
      eruca console -n 10.0.0.1:9876 --console-listen-port 8090
      eruca console --host 10.0.0.5 --option tls.server.mode=enforcing
      eruca console --reset-password admin
    """
    options = settings.build(ConsoleOptions)
    if options.port == NO_PORT:
        raise ConfigError(f"{_PORT_KEY}={NO_PORT}: the console needs a port")
    if host is not None:
        options = replace(options, bind=host)
    identity, watching = settings.build(IdentityOptions), settings.build(WatchingOptions)
    tls = settings.build(TlsOptions)
    _require_protection(options, identity, tls, insecure=insecure)
    if print_config:
        print_settings(settings, output, options, identity, watching, tls)
        return
    start_logs(settings, LogLevel.WARNING, log_json)
    if reset is not None:
        _reset_password(Path(options.directory), reset)
        return
    clusters = [_make_cluster(text) for text in others] or [
        _open_cluster(_ONLY, make_options(nameservers), name_cluster())
    ]
    server = _build(options, clusters, identity, watching, tls)
    hint = f"is another console running? Choose another port: --console-listen-port {options.port + 1}"

    def tell() -> None:
        announce(output, {"console": server.address, "first_password": server.first_password})
        tell_password(server)

    run_services([Service(server, hint)], tell)


class OwnConsole:
    """The console beside the servers of `eruca up`, for their cluster. It is built when they have started."""

    def __init__(self, settings: Settings, data: Path, access: AccessOptions, tls: TlsOptions) -> None:
        """Raises ConfigError."""
        settings.suggest(_DIRECTORY_KEY, str(data / "console"))
        self._settings = settings
        self._options = settings.build(ConsoleOptions)
        self._identity, self._watching = settings.build(IdentityOptions), settings.build(WatchingOptions)
        self._access, self._tls = access, tls
        #: The address of the name server.
        self.nameserver = ""
        self._console: Console | None = None

    @property
    def address(self) -> str:
        """Where it is; empty if it is not running."""
        return "" if self._console is None else self._console.address

    @property
    def options(self) -> tuple[ConsoleOptions, IdentityOptions, WatchingOptions]:
        """Its options, to be printed."""
        return self._options, self._identity, self._watching

    def list_services(self, *, insecure: bool) -> list[Service]:
        """Return the service that runs it, none if it is off. Raises ConfigError for an address others can reach."""
        if self._options.port == NO_PORT:
            return []
        _require_protection(self._options, self._identity, self._tls, insecure=insecure)
        hint = f"is another console running? Choose another port: --console-listen-port {self._options.port + 1}, or"
        hint += " -1 for none"
        # Nobody asked for a port that only this command opens: the servers run without it.
        return [Service(self, hint, is_optional=not self._settings.is_set(_PORT_KEY))]

    async def start(self) -> None:
        """Start it, if the packages it needs are installed."""
        options = ClientOptions(nameservers=self.nameserver, tls=choose_outgoing(self._tls))
        words = ["-n", self.nameserver]
        tools = find_tools_file(self._access)
        if tools is not None:
            account = read_account_file(tools)
            options = replace(options, access_key=account.access_key, secret_key=account.secret_key)
            words += ["--account", str(tools)]
        try:
            self._console = _build(
                self._options, [_open_cluster(_ONLY, options, words)], self._identity, self._watching, self._tls
            )
        except ConfigError as error:
            if self._settings.is_set(_PORT_KEY):
                raise
            say(str(error))
            return
        try:
            await self._console.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop it."""
        server, self._console = self._console, None
        if server is not None:
            await server.stop()

    def look_again(self) -> None:
        """Check its certificates."""
        if self._console is not None:
            self._console.look_again()

    def tell_password(self) -> None:
        """Print the one-time password after the first start."""
        if self._console is not None:
            tell_password(self._console)


def tell_password(server: Console) -> None:
    """Print the one-time password after the first start."""
    if server.first_password:
        say(f"log in to the console as admin with this password, once: {server.first_password}")


def _reset_password(directory: Path, user: str) -> None:
    from eruca._console.identity.resetting import renew_password

    say(f"log in as {user} with this password, once: {asyncio.run(renew_password(directory, user))}")


def _build(
    options: ConsoleOptions,
    clusters: Sequence[Cluster],
    identity: IdentityOptions,
    watching: WatchingOptions,
    tls: TlsOptions,
) -> Console:
    """Return a console. Raises ConfigError without the extra."""
    try:
        from eruca._console.app import Console
        from eruca._console.brokers.reading import OptionMeaning
    except ImportError as error:
        hint = 'pip install "eruca[console]", or turn it off: --console-listen-port -1'
        raise ConfigError(f"the console needs a package: {error}", hint=hint) from error
    meanings = [
        OptionMeaning(
            key=facts.key,
            doc=facts.info.doc,
            default=facts.default,
            unit=facts.info.unit,
            values=facts.values,
            mutable=facts.info.mutable,
        )
        for facts in options_of(Role.BROKER).values()
        if not facts.no_effect
    ]
    return Console(options, clusters, meanings, identity=identity, tls=tls, watching=watching, list_undo=list_undo)


def _make_cluster(text: str) -> Cluster:
    """Return the cluster of a `NAME=HOST:PORT`. Raises ConfigError."""
    name, _, addresses = text.partition("=")
    if not name or not addresses or len(name) > _NAME_CHARS_MAX or not name.isprintable() or "/" in name:
        raise ConfigError(f"--cluster {text}: expected NAME=HOST:PORT")
    return _open_cluster(name, make_options(parse_nameservers(addresses)), ["-n", addresses])


def _open_cluster(name: str, options: ClientOptions, words: Sequence[str]) -> Cluster:
    from eruca._console.clusters import Cluster

    return Cluster(name, Admin(options=options), tuple(words))


def _require_protection(options: ConsoleOptions, identity: IdentityOptions, tls: TlsOptions, *, insecure: bool) -> None:
    """Raise ConfigError for an address that other machines can reach without TLS: passwords would be readable."""
    if is_loopback(options.bind) or tls.mode is TlsMode.ENFORCING or identity.proxies or insecure:
        return
    raise ConfigError(
        f"other machines can reach {options.bind or 'all addresses'}, and passwords would be sent without TLS",
        hint="set tls.server.mode=enforcing, or consoleProxies if a proxy does it; --insecure allows it",
    )
