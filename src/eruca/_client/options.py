"""Options shared by producers and consumers: where the cluster is, credentials, identity and timeouts."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eruca._client.arguments import check_count, check_secret, check_type
from eruca._ground.durations import Duration, to_seconds
from eruca._ground.limits import CALLS_IN_FLIGHT_MAX
from eruca._ground.urls import check_url
from eruca._net.addresses import check_addresses, split_addresses
from eruca._net.tls import Tls, TlsChoice, read_tls_environment
from eruca.errors import ConfigError, WrongType

# Intervals and timeouts of zero would keep the client busy, or fail every request.
_DURATION_MIN_S = 0.001


def _find_own_ip() -> str:
    """Return the address other machines would see, without sending a packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


# Named, because the reference shows the names as defaults.
def _read_address_server() -> str:
    return os.environ.get("ERUCA_ADDRESS_SERVER", "")


def _read_access_key() -> str:
    return os.environ.get("ERUCA_ACCESS_KEY", "")


def _read_secret_key() -> str:
    return os.environ.get("ERUCA_SECRET_KEY", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings of a session. Clients with equal settings in one process share one session and its connections.

    >>> options = ClientOptions(access_key="shop", secret_key="...", heartbeat_interval=10)
    >>> producer = Producer("127.0.0.1:9876", group="shop", options=options)
    """

    # Addresses of name servers, `host:port` separated by `;`. If empty: NAMESRV_ADDR, then the address server.
    nameservers: str = ""
    # An http(s) URL that returns the list of name servers; it is fetched again every two minutes.
    address_server: str = field(default_factory=_read_address_server)
    # Used to sign every request. The secret never appears in a repr or a log.
    access_key: str = field(default_factory=_read_access_key)
    secret_key: str = field(default_factory=_read_secret_key, repr=False)
    security_token: str = field(default="", repr=False)
    # True: TLS with the CAs of the system. A `Tls` names the files to use, and a context is used as it is. None and
    # False: no TLS. The default is read from ERUCA_TLS, ERUCA_TLS_CA, ERUCA_TLS_CERT and ERUCA_TLS_KEY.
    tls: TlsChoice = field(default_factory=read_tls_environment)
    # Topics and groups of a namespace are `namespace%name` on the broker; the client hides the prefix.
    namespace: str = ""
    # Distinguishes processes on one machine, for the local offsets of broadcast consumers.
    instance: str = "DEFAULT"
    # The address at the beginning of message ids and of the client id.
    ip: str = field(default_factory=_find_own_ip)
    # How long one request to a server may take.
    call_timeout: Duration = 3.0
    # How often routes are refreshed from the name servers, and how often brokers get a heartbeat.
    route_interval: Duration = 30.0
    heartbeat_interval: Duration = 30.0
    # The most requests that may wait for an answer at the same time.
    calls_max: int = CALLS_IN_FLIGHT_MAX

    def __post_init__(self) -> None:
        for name in ("nameservers", "address_server", "access_key", "namespace", "instance", "ip"):
            check_type(name, getattr(self, name), str)
        for name in ("secret_key", "security_token"):
            check_secret(name, getattr(self, name))
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError(
                "an access key needs a secret key, and vice versa",
                hint="set both, or neither: access_key= and secret_key=, ERUCA_ACCESS_KEY and ERUCA_SECRET_KEY",
            )
        if self.address_server:
            hint = "put an address server that needs a login behind one that does not"
            check_url("address_server", self.address_server, hint, may_have_query=True)
        if self.tls is not None:
            check_type("tls", self.tls, bool, Tls, ssl.SSLContext)
        if isinstance(self.tls, bool):
            # Converted, so that equal options compare equal and share a session.
            object.__setattr__(self, "tls", read_tls_environment(enabled=True) if self.tls else None)
        check_nameservers("nameservers", self.nameservers)
        check_count("calls_max", self.calls_max)
        for name in ("call_timeout", "route_interval", "heartbeat_interval"):
            # Converted to seconds, so that equal options compare equal and share a session.
            object.__setattr__(self, name, to_seconds(name, getattr(self, name), at_least=_DURATION_MIN_S))


def check_nameservers(name: str, text: str) -> None:
    """Check a list of name servers. Raises ConfigError, naming the argument, unless each is host:port."""
    for part in split_addresses(text):
        if "/" in part:
            raise ConfigError(
                f"{name}={text!r}: {part!r} is a URL, not host:port",
                hint="for example 127.0.0.1:9876; an address server is ClientOptions(address_server=...)",
            )
    check_addresses(name, text)


def choose_options(nameservers: str | Sequence[str] | None, options: ClientOptions | None) -> ClientOptions:
    """Return the options passed to a client; name servers passed separately take precedence."""
    if options is not None:
        check_type("options", options, ClientOptions)
    chosen = options or ClientOptions()
    if nameservers is None:
        return chosen
    given: object = nameservers
    if isinstance(given, str):
        return replace(chosen, nameservers=given)
    if not isinstance(given, Sequence) or not all(isinstance(item, str) for item in given):
        raise WrongType(f"nameservers={given!r:.80}: expected a str or a list of them, each host:port")
    return replace(chosen, nameservers=";".join(given))
