"""`eruca filterserver`: run a filter server until it is told to stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eruca._access.options import AccessOptions
from eruca._cli.observing import build_metrics_options, make_metrics_service
from eruca._cli.optionlist import Role
from eruca._cli.running import Service, run_services
from eruca._cli.serve import add_server_options, announce, print_settings, start_logs
from eruca._cli.settings import Settings, build_access_options, choose_told_address, require_loopback
from eruca._filterserver.app import FilterServer
from eruca._filterserver.options import FilterServerOptions
from eruca._net.addresses import check_addresses
from eruca._net.tlsoptions import TlsOptions
from eruca.errors import ConfigError


@add_server_options(Role.FILTERSERVER)
def filterserver(
    settings: Settings, host: str | None, insecure: bool, print_config: bool, log_json: bool, output: str
) -> None:
    """Run a filter server, which filters messages with code supplied by their consumers.

    It pulls from one broker, asks the consumer's filter class about each message, and serves the messages that match. A
    broker accepts filter servers only if configured to: `eruca broker --filter-server-nums 1`. Clients then find them
    automatically.

    A filter class is a WebAssembly module that the consumer uploads:

    \b
      Consumer(..., subscribe={"orders": ClassFilter("OnlyLarge", module)})

    It exports `memory`, `alloc(size) -> address`, and a function with the name of the class, `(address, size) -> i32`,
    which returns 0 for messages that do not match. At the address are: the length of the properties in 4 bytes
    (little-endian), the properties (name 0x01 value 0x02 ...), and the body. It may import nothing, and its time and
    memory are limited; a module that exceeds a limit is switched off for its group.

    Or it is a Python class that you installed on this machine, in a file of --filter-plugin-path:

    \b
      from eruca.filters import FilterClass, FilterMessage
      class OnlyLarge(FilterClass):
          def matches(self, message: FilterMessage) -> bool:
              return len(message.body) > 1000

    Consumers refer to it by name: ClassFilter("OnlyLarge"). Code that a client uploads is never run as Python or Java.

    \b
    Examples:
      eruca up --filter-server-nums 1   a broker; then, in another terminal:
      eruca filterserver                for the broker on 127.0.0.1:10911
      eruca filterserver -b 10.0.0.5:10911 --host 10.0.0.6 --insecure
      eruca filterserver --filter-plugin-path filters
    """
    access = build_access_options(settings, Path())
    options = _build(settings, host, access, insecure=insecure)
    tls, metrics = settings.build(TlsOptions), build_metrics_options(settings, insecure=insecure)
    if print_config:
        print_settings(settings, output, options, access, tls, metrics)
        return
    start_logs(settings, options.log_level, log_json)
    server = FilterServer(options, access=access, tls=tls)
    hint = "another process has the port; leave out --listen-port to use any free port"
    observing, port = make_metrics_service(settings, metrics, tls, {"filter server": server})

    def say() -> None:
        announce(
            output,
            {
                "filterserver": server.address,
                "broker": options.broker,
                "name": server.broker_name or "(not registered yet)",
                "installed": " ".join(sorted(server.plugins)),
                "uploads": options.uploads,
                "metrics": port.address,
            },
        )

    run_services([*observing, Service(server, hint)], say)


def _build(settings: Settings, host: str | None, access: AccessOptions, *, insecure: bool) -> FilterServerOptions:
    options = settings.build(FilterServerOptions)
    check_addresses("connectWhichBroker", options.broker)
    if host is not None:
        options = replace(options, bind=host)
        if not settings.is_set("filterServerIP"):
            options = replace(options, host=choose_told_address(host))
    require_loopback("the filter server", options.bind_host, access, insecure=insecure)
    _require_accounts(access, insecure=insecure)
    return options


def _require_accounts(access: AccessOptions, *, insecure: bool) -> None:
    """Raise ConfigError where anybody could read with this server's account, also on the same machine."""
    if access.credentials is not None and not access.enabled and not insecure:
        raise ConfigError(
            "the filter server would pull with the account of brokerAccessKey for whoever connects, without accounts:"
            " that account may read every topic",
            hint="set aclEnable=true too; --insecure allows everyone",
        )
