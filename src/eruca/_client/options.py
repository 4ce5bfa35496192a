"""What producers and consumers have in common: where the cluster is, who we are, and how patient we are."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eruca._ground.limits import CALLS_IN_FLIGHT_MAX
from eruca.errors import ConfigError


def _find_own_ip() -> str:
    """The address other machines would see; no packet is sent to find it out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings of a session. Clients with equal settings in one process share one session and its connections.

    >>> options = ClientOptions(access_key="shop", secret_key="...", heartbeat_interval_ms=10_000)
    >>> producer = Producer("127.0.0.1:9876", group="shop", options=options)
    """

    # Addresses of name servers, `host:port` separated by `;`. Empty: NAMESRV_ADDR, then the address server.
    nameservers: str = ""
    # An http(s) address that answers with the list of name servers; asked again every two minutes.
    address_server: str = field(default_factory=lambda: os.environ.get("ERUCA_ADDRESS_SERVER", ""))
    # Signs every request when set. The secret never shows in a repr or a log.
    access_key: str = field(default_factory=lambda: os.environ.get("ERUCA_ACCESS_KEY", ""))
    secret_key: str = field(default_factory=lambda: os.environ.get("ERUCA_SECRET_KEY", ""), repr=False)
    security_token: str = field(default="", repr=False)
    # A context for TLS; None is plain.
    tls: ssl.SSLContext | None = None
    # Topics and groups of a namespace are `namespace%name` on the broker; users of the client do not see it.
    namespace: str = ""
    # Names this process among several on a machine, for the local offsets of broadcast consumers.
    instance: str = "DEFAULT"
    # The address that message ids and the client id begin with.
    ip: str = field(default_factory=_find_own_ip)
    # How long one question to a server may take.
    call_timeout_ms: int = 3000
    route_interval_ms: int = 30_000
    heartbeat_interval_ms: int = 30_000
    # Requests that may wait for an answer at the same time.
    calls_max: int = CALLS_IN_FLIGHT_MAX

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError(
                "an access key needs a secret key, and the other way round",
                hint="set both, or neither: access_key= and secret_key=, ERUCA_ACCESS_KEY and ERUCA_SECRET_KEY",
            )
        for name in ("call_timeout_ms", "route_interval_ms", "heartbeat_interval_ms", "calls_max"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be above 0")


def choose_options(nameservers: str | Sequence[str] | None, options: ClientOptions | None) -> ClientOptions:
    """The options a client was given, with the name servers it was given first."""
    chosen = options or ClientOptions()
    if nameservers is None:
        return chosen
    text = nameservers if isinstance(nameservers, str) else ";".join(nameservers)
    return replace(chosen, nameservers=text)
