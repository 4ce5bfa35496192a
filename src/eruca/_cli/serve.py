"""`eruca up`, `eruca nameserver`, `eruca broker`: run servers until they are told to stop."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._broker.options import FAST_PORT_BELOW, BrokerOptions
from eruca._cli.grouping import SectionedCommand
from eruca._cli.observing import build_metrics_options, make_metrics_service
from eruca._cli.optionlist import OptionFacts, Role, options_of
from eruca._cli.output import make_console, print_rows
from eruca._cli.recovering import RecoveryWatch
from eruca._cli.running import Service, run_services
from eruca._cli.saying import say
from eruca._cli.settings import (
    NAMESRV_VARIABLE,
    Setting,
    Settings,
    build_access_options,
    build_broker_options,
    build_store_options,
    choose_told_address,
    describe_settings,
    gather_settings,
    require_loopback,
)
from eruca._cli.store import raise_open_files_limit
from eruca._cli.uppanel import draw_panel, find_account
from eruca._ground.config import StoreOptions, info_of
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._net.addresses import split_addresses
from eruca._net.limitoptions import LimitOptions
from eruca._net.metricsoptions import USUAL_PORT
from eruca._net.tlsoptions import TlsMode, TlsOptions
from eruca._observe.logs import LogLevel, set_up_logs
from eruca._store.layout import StorePaths
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca._cli.console import OwnConsole

_DATA = Path("eruca-data")
# Flags that --help shows; the others work too, and `eruca config list` lists them.
_EVERYDAY = frozenset(
    {
        "namesrvAddr",
        "brokerClusterName",
        "brokerName",
        "listenPort",
        "storePathRootDir",
        "flushDiskType",
        "fileReservedTime",
        "autoCreateTopicEnable",
        "orderMessageEnable",
        "kvConfigPath",
        "logLevel",
        "metricsPort",
        "consoleListenPort",
        "connectWhichBroker",
        "filterPluginPath",
        "clientUploadFilterClassEnable",
        "filterFuel",
        "filterMemorySize",
        "filterTimeout",
    }
)
_SHORT = {"namesrvAddr": "-n", "connectWhichBroker": "-b"}
# A first store is small: `eruca up` on a laptop should not take a gigabyte for one message. Four index entries per
# slot, as by default, so that the sizes can be derived from the files.
_SMALL_STORE = {
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(30_000 * 20),
    "maxHashSlotNum": "250000",
    "maxIndexNum": "1000000",
}


# After the table of `eruca up` only warnings are shown; -v shows more.
_UP_DEFAULTS = {"logLevel": LogLevel.WARNING.value, **_SMALL_STORE}


# --- flags ----------------------------------------------------------------------------------------------------------


def add_server_options(
    *roles: Role, defaults: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command with a flag for each option of its roles; the function gets the settings.

    `defaults` are those that the command has instead of the usual ones.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        known = {key: facts for key, facts in options_of(*roles).items() if not facts.no_effect}

        @functools.wraps(function)
        def with_settings(config: Path | None, overrides: tuple[str, ...], **given: Any) -> None:
            flags = {key: given.pop(_name_parameter(key)) for key in known}
            settings = gather_settings(*roles, config=config, environment=os.environ, overrides=overrides, flags=flags)
            if verbose := click.get_current_context().find_root().params.get("verbose", 0):
                level = LogLevel.DEBUG if verbose > 1 else LogLevel.INFO
                settings.found["logLevel"] = Setting(level.value, "-v")
            function(settings=settings, **given)

        command: Any = with_settings
        for facts in reversed(known.values()):
            command = _make_flag(facts, defaults.get(facts.key, facts.default))(command)
        for decorator in reversed(_SHARED):
            command = decorator(command)
        return click.command(cls=SectionedCommand)(command)

    return decorate


def _make_flag(facts: OptionFacts, usual: str) -> Callable[[Any], Any]:
    short = [_SHORT[facts.key]] if facts.key in _SHORT else []
    unit = f" ({facts.info.unit})" if facts.info.unit else ""
    default = f" [default: {usual}]" if usual else ""
    return click.option(
        *short,
        facts.flag,
        _name_parameter(facts.key),
        metavar="VALUE",
        hidden=facts.key not in _EVERYDAY,
        help=f"{facts.key}: {facts.info.doc}{unit}{default}",
    )


def _name_parameter(key: str) -> str:
    """Return the name of an option's parameter: keys with dots are not names."""
    return key.replace(".", "_")


_SHARED = (
    click.option(
        "-c",
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A .conf file of RocketMQ 4.x.",
    ),
    click.option(
        "--option",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Any option by its RocketMQ name; overrides file and environment.",
    ),
    click.option("--host", metavar="ADDRESS", help="Address to bind and to announce to clients [default: 127.0.0.1]."),
    click.option(
        "--insecure",
        is_flag=True,
        help="Allow an address that other machines can reach although there are no accounts (aclEnable=false): whoever"
        " reaches it can read, send and delete everything.",
    ),
    click.option("-p", "--print-config", is_flag=True, help="Print all options and where each was set, then stop."),
    click.option("--log-json", is_flag=True, help="Log one JSON object per line."),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        help="How to print the addresses once it runs: a table, or one line of JSON.",
    ),
)


# --- the commands ---------------------------------------------------------------------------------------------------


@add_server_options(Role.NAMESERVER)
def nameserver(
    settings: Settings, host: str | None, insecure: bool, print_config: bool, log_json: bool, output: str
) -> None:
    """Run a name server, where brokers register and clients look up queues.

    Reads the namesrv.conf of RocketMQ 4.x as it is (-c FILE). Environment variables (ERUCA_LISTEN_PORT) override the
    file, and flags override both. Every option has a flag, also those not listed here: see `eruca config list`. The
    word `start` may be left out.

    \b
    Examples:
      eruca nameserver start                             on 127.0.0.1:9876
      eruca nameserver start -c namesrv.conf
      eruca nameserver start --listen-port 9877
      eruca nameserver start -c conf/nameserver.conf     accounts of `eruca init`
      eruca nameserver start --host 10.0.0.5 --insecure  open, no accounts
    """
    if settings.config is not None:
        # As in Java: changes at run time are written to the file it was started with.
        settings.suggest("configStorePath", str(settings.config), str(settings.config))
    settings.add_kept(Path(settings.build(NameServerOptions).config_store_path), NameServerOptions)
    options = settings.build(NameServerOptions)
    if host is not None:
        options = replace(options, bind_address=host)
    access = build_access_options(settings, Path(options.kv_config_path).parent)
    require_loopback("the name server", options.bind_address, access, insecure=insecure)
    tls = settings.build(TlsOptions)
    metrics = build_metrics_options(settings, insecure=insecure)
    if print_config:
        print_settings(settings, output, options, access, tls, metrics)
        return
    start_logs(settings, options.log_level, log_json)
    server = NameServer(options, access=access, tls=tls)
    observing, port = make_metrics_service(settings, metrics, tls, {"name server": server})
    hint = "is another name server running? Stop it, or choose another port: --listen-port 9877"
    run_services(
        [*observing, Service(server, hint)],
        lambda: announce(output, {"nameserver": server.address, "metrics": port.address}),
    )


@add_server_options(Role.BROKER)
def broker(
    settings: Settings, host: str | None, insecure: bool, print_config: bool, log_json: bool, output: str
) -> None:
    """Run a broker, which stores messages and delivers them to consumers.

    Reads the broker.conf of RocketMQ 4.x as it is (-c FILE). Environment variables (ERUCA_LISTEN_PORT) override the
    file, and flags override both; the file overrides NAMESRV_ADDR, as in Java. Every option has a flag, also those not
    listed here: see `eruca config list`. An existing store keeps the sizes of its files; a store written by a Java
    broker can be opened as it is. The word `start` may be left out.

    \b
    Examples:
      eruca broker start -n 127.0.0.1:9876    store in ./eruca-data/store
      eruca broker start -c broker.conf -p    print the options in force, stop
      eruca broker start -c conf/broker.conf  with accounts of `eruca init`
      eruca broker start -n 10.0.0.1:9876 --host 10.0.0.5 --insecure
      eruca broker start -n 127.0.0.1:9876 --option flushDiskType=SYNC_FLUSH
      eruca broker start -n 127.0.0.1:9876 --metrics-port 5557   metrics, health
    """
    options = _build_broker(settings, host)
    access = build_access_options(settings, StorePaths(Path(options.store_root)).config)
    require_loopback("the broker", options.bind_host, access, insecure=insecure)
    store_options = _fit_store(settings, options)
    tls, metrics = settings.build(TlsOptions), build_metrics_options(settings, insecure=insecure)
    if print_config:
        print_settings(settings, output, options, store_options, access, tls, metrics)
        return
    start_logs(settings, options.log_level, log_json)
    if not (options.nameservers or options.nameserver_domain):
        say("no name server is set, so clients cannot find this broker (-n 127.0.0.1:9876)")
    service, server = _make_broker(settings, options, store_options, access)
    observing, port = make_metrics_service(settings, metrics, tls, {"broker": server})
    run_services([*observing, service], lambda: announce(output, {**_describe_broker(server), "metrics": port.address}))


@add_server_options(Role.BROKER, Role.NAMESERVER, Role.CONSOLE, defaults=_UP_DEFAULTS)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=_DATA,
    help="The directory for all data [default: ./eruca-data].",
)
@click.option(
    "--nameserver-port", type=click.IntRange(0, 65535), default=9876, help="The name server's port [default: 9876]."
)
def up(
    settings: Settings,
    host: str | None,
    insecure: bool,
    print_config: bool,
    log_json: bool,
    output: str,
    data: Path,
    nameserver_port: int,
) -> None:
    """Start a name server and a broker in one process.

    All data is in ./eruca-data. The servers bind to loopback, so other machines cannot reach them. A .conf file,
    variables and flags set the options of the broker, as for `eruca broker`. A new store has small files (64 MiB); an
    existing one keeps its sizes. Metrics for Prometheus and health checks are on port 5557, the web console is on port
    8080 of loopback; its first start prints a one-time password. Ctrl-C or SIGTERM stops it and writes everything to
    disk; a second one stops it at once.

    \b
    Examples:
      eruca up
      eruca up -c conf/broker.conf         with accounts made by `eruca init`
      eruca up --host 0.0.0.0 --insecure   open to other machines, no accounts
      eruca up --data second --nameserver-port 9877 --listen-port 10921 \\
          --metrics-port 5558 --console-listen-port 8081   a second one beside it
    """
    settings.forget("namesrvAddr", NAMESRV_VARIABLE)
    settings.suggest("storePathRootDir", str(data / "store"))
    settings.suggest("kvConfigPath", str(data / "namesrv" / "kvConfig.json"))
    settings.suggest("configStorePath", str(data / "namesrv" / "namesrv.properties"))
    settings.suggest("metricsPort", str(USUAL_PORT))
    for key, text in _UP_DEFAULTS.items():
        settings.suggest(key, text)
    options = _build_broker(settings, host)
    access = build_access_options(settings, data)
    require_loopback("the broker", options.bind_host, access, insecure=insecure)
    store_options = _fit_store(settings, options)
    # Options that both have, such as the port, are the broker's here.
    shared = {info.java for part in (BrokerOptions, StoreOptions) for info in info_of(part).values()}
    shared -= {info.java for info in info_of(LimitOptions).values()}
    for_nameserver = _build_its_nameserver(settings, shared)
    for_nameserver = replace(
        for_nameserver, bind_address=options.bind_host, listen_port=nameserver_port, log_level=options.log_level
    )
    tls = settings.build(TlsOptions)
    if tls.mode is TlsMode.ENFORCING and not tls.outgoing:
        raise ConfigError(
            "tls.server.mode=enforcing: the broker could not register with its own name server, which accepts only TLS",
            hint="set tls.enable=true, and tls.client.trustCertPath to the CA of the certificate (a self-signed one is"
            " its own CA)",
        )
    metrics = build_metrics_options(settings, insecure=insecure)
    console = _make_console(settings, data, access, tls)
    if print_config:
        print_settings(settings, output, options, store_options, access, tls, metrics, *console.options)
        return
    start_logs(settings, options.log_level, log_json)
    server = NameServer(for_nameserver, access=access, tls=tls)
    first = Service(server, "is another name server running? Stop it, or choose another port: --nameserver-port 9877")
    second, keeper = _make_broker(settings, options, store_options, access)

    def tell_nameservers() -> None:
        # The address it listens on: the one announced to clients may not be reachable from this machine.
        own = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(options.bind_host, options.bind_host)
        console.nameserver = f"{own}:{server.server.port}"
        known = [console.nameserver, *split_addresses(options.nameservers)]
        keeper.live.change(nameservers=";".join(dict.fromkeys(known)))

    first.on_started = tell_nameservers
    observing, port = make_metrics_service(settings, metrics, tls, {"name server": server, "broker": keeper})

    def tell() -> None:
        _announce_up(output, server, keeper, data, {"metrics": port.address, "console": console.address})
        console.tell_password()

    run_services([*observing, first, second, *console.list_services(insecure=insecure)], tell)


# --- parts of them --------------------------------------------------------------------------------------------------


def _build_its_nameserver(settings: Settings, shared: Container[str]) -> NameServerOptions:
    """Return the options of the name server beside a broker: those the broker does not have, and its own file."""
    own = Settings((Role.NAMESERVER,), found={key: s for key, s in settings.found.items() if key not in shared})
    own.add_kept(Path(own.build(NameServerOptions).config_store_path), NameServerOptions)
    return own.build(NameServerOptions)


def _make_console(settings: Settings, data: Path, access: AccessOptions, tls: TlsOptions) -> OwnConsole:
    # That command is made of parts of this module.
    from eruca._cli.console import OwnConsole

    return OwnConsole(settings, data, access, tls)


def _build_broker(settings: Settings, host: str | None) -> BrokerOptions:
    settings.add_kept(_find_kept(build_broker_options(settings)), BrokerOptions, StoreOptions)
    options = build_broker_options(settings)
    if host is not None:
        options = replace(options, bind=host)
        if not settings.is_set("brokerIP1"):
            options = replace(options, host=choose_told_address(host))
    return options


def _fit_store(settings: Settings, options: BrokerOptions) -> StoreOptions:
    commitlog = Path(options.commitlog_path) if options.commitlog_path else None
    return build_store_options(settings, Path(options.store_root), commitlog)


def _find_kept(options: BrokerOptions) -> Path:
    """The file of a store that options are kept in which were changed while the broker ran without a `.conf` file."""
    return StorePaths(Path(options.store_root)).options


def _make_broker(
    settings: Settings, options: BrokerOptions, store_options: StoreOptions, access: AccessOptions
) -> tuple[Service, Broker]:
    raise_open_files_limit()
    root = Path(options.store_root)
    watch = RecoveryWatch(Path(options.commitlog_path) if options.commitlog_path else root / "commitlog")
    in_store = _find_kept(options)
    server = Broker(
        options,
        store_options,
        root,
        access=access,
        progress=watch,
        # As in Java: changes at run time are written to the file it was started with.
        kept_options=settings.config or in_store,
        overridden=settings.list_overriding(settings.config, in_store),
        tls=settings.build(TlsOptions),
    )
    hint = f"is another broker running? Stop it, or choose another port: --listen-port {options.port + 10}"
    return Service(server, hint, after_start=watch.close), server


def start_logs(settings: Settings, level: LogLevel, log_json: bool) -> None:
    """Logs to stderr, and first of all what there is to say about the settings."""
    set_up_logs(level, as_json=log_json)
    for note in settings.notes:
        say(note)


def print_settings(settings: Settings, output: str, *options: Any) -> None:
    """Every option in force and where it was set."""
    rows = describe_settings(settings, *options)
    print_rows(rows, output, ["key", "value", "set by"], lambda row: (row["key"], row["value"], row["source"]))
    for note in settings.notes:
        say(note)


# --- saying that all is up ------------------------------------------------------------------------------------------


def _describe_broker(server: Broker) -> dict[str, Any]:
    options, standing = server.options, server.standing
    return {
        "broker": standing.address,
        "fast": f"{options.host}:{standing.port - FAST_PORT_BELOW}",
        "name": options.name,
        "cluster": options.cluster,
        "store": options.store_root,
        "nameservers": options.nameservers,
    }


def announce(output: str, facts: Mapping[str, Any]) -> None:
    """Say that all is up, and where."""
    shown = facts if output == "json" else {key: str(value) for key, value in facts.items() if value}
    print_rows([shown], "json" if output == "json" else "table", list(shown), lambda row: list(row.values()))


def _announce_up(output: str, server: NameServer, keeper: Broker, data: Path, pages: Mapping[str, str]) -> None:
    facts = {**_describe_broker(keeper), **pages}
    address = f"{keeper.options.host}:{server.server.port}"
    if output == "json":
        announce(output, {"nameserver": address, **facts, "data": str(data), "pid": os.getpid()})
        return
    make_console().print(draw_panel(address, facts, data, find_account(keeper.access.options)))
