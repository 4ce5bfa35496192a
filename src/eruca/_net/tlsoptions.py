"""The options of TLS: what the ports of a server accept, and how a server connects to other servers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from eruca._ground.config import option
from eruca.errors import ConfigError


class TlsMode(enum.Enum):
    """Which connections a port accepts."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.Enum):
    """Whether clients have to present a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of one server: of its ports, and of its connections to other servers."""

    mode: TlsMode = option(
        TlsMode.PERMISSIVE,
        "tls.server.mode",
        "what the ports accept: only plain connections, both, or only TLS",
    )
    certificate: str = option(
        "",
        "tls.server.certPath",
        "PEM file with the certificate of this server, followed by intermediate ones; empty: self-signed, new at every "
        "start. It is read again when it changes",
    )
    key: str = option("", "tls.server.keyPath", "PEM file with the private key of that certificate")
    key_password: str = option("", "tls.server.keyPassword", "password of that key", secret=True)
    client_auth: ClientAuth = option(
        ClientAuth.NONE,
        "tls.server.need.client.auth",
        "whether TLS clients have to present a certificate; a presented one is always verified",
    )
    trust: str = option("", "tls.server.trustCertPath", "PEM file with the CA certificates that sign those of clients")
    reload_ms: int = option(
        5000,
        "tls.server.reloadInterval",
        "how often these files are checked for changes; SIGHUP does so at once (not in 4.9)",
        unit="ms",
        low=1,
    )
    outgoing: bool = option(
        False, "tls.enable", "connect to other servers over TLS: name servers, other brokers, masters"
    )
    outgoing_trust: str = option(
        "",
        "tls.client.trustCertPath",
        "PEM file with the CA certificates that sign those of other servers; empty: the CAs of the system",
    )
    outgoing_certificate: str = option(
        "", "tls.client.certPath", "PEM file with the certificate that this server presents to other servers"
    )
    outgoing_key: str = option("", "tls.client.keyPath", "PEM file with the private key of that certificate")
    outgoing_key_password: str = option("", "tls.client.keyPassword", "password of that key", secret=True)
    outgoing_verify: bool = option(
        True, "tls.client.authServer", "verify certificate and host name of other servers (Java: false)"
    )

    def __post_init__(self) -> None:
        for file, needed in (("server", (self.certificate, self.key)), ("client", self._outgoing_pair)):
            if bool(needed[0]) != bool(needed[1]):
                missing = "keyPath" if needed[0] else "certPath"
                raise ConfigError(
                    f"tls.{file}.certPath and tls.{file}.keyPath belong together", hint=f"set tls.{file}.{missing} too"
                )
        if self.client_auth is not ClientAuth.NONE and not self.trust:
            raise ConfigError(
                f"tls.server.need.client.auth={self.client_auth.value} needs the CA certificates of clients",
                hint="set tls.server.trustCertPath",
            )

    @property
    def verifies_servers(self) -> bool:
        """Whether connections to other servers authenticate both sides by their certificates."""
        return self.outgoing and self.outgoing_verify and bool(self.outgoing_certificate)

    @property
    def _outgoing_pair(self) -> tuple[str, str]:
        return self.outgoing_certificate, self.outgoing_key
