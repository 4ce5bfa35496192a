"""The options of log-in, sessions and the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from eruca._console.identity.rights import Role, read_role
from eruca._ground.config import option
from eruca._ground.urls import check_url
from eruca.errors import ConfigError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class IdentityOptions:
    """Who may use the console, and for how long."""

    idle_minutes: int = option(
        30, "consoleSessionIdleMinutes", "a session ends after this long without a request", unit="minutes", low=1
    )
    session_hours: int = option(
        12, "consoleSessionHours", "a session ends this long after its log-in", unit="hours", low=1, high=24 * 366
    )
    audit_days: int = option(
        400, "consoleAuditDays", "how long the console keeps its audit log", unit="days", low=1, high=36_600
    )
    hosts: str = option(
        "",
        "consoleHosts",
        "host names by which browsers reach the console, separated by commas; addresses, localhost and the name of the "
        "machine are known",
    )
    proxies: str = option(
        "",
        "consoleProxies",
        "addresses of reverse proxies, separated by commas, whose X-Forwarded-For and X-Forwarded-Proto are believed",
    )
    url: str = option("", "consoleUrl", "the address of the console in browsers; OpenID Connect needs it")
    oidc_issuer: str = option("", "consoleOidcIssuer", "URL of a provider of OpenID Connect; empty: none")
    oidc_client: str = option("", "consoleOidcClientId", "the client id of the console at that provider")
    oidc_secret: str = option("", "consoleOidcClientSecret", "the client secret of the console there", secret=True)
    oidc_scopes: str = option("openid profile email", "consoleOidcScopes", "the scopes that the console asks for")
    oidc_name_claim: str = option("preferred_username", "consoleOidcNameClaim", "the claim with the name of the user")
    oidc_role_claim: str = option(
        "groups", "consoleOidcRoleClaim", "the claim with the groups of the user; dots lead into objects"
    )
    oidc_roles: str = option(
        "",
        "consoleOidcRoles",
        "roles by group: `admins=admin;on-call=operator;*=viewer`; the strongest counts, and without any there is no "
        "log-in",
    )
    oidc_trust: str = option(
        "", "consoleOidcTrustCertPath", "PEM file with the CA certificates of the provider; empty: those of the system"
    )

    def __post_init__(self) -> None:
        hint = "a URL needs no secret"
        if self.url:
            check_url("consoleUrl", self.url, hint)
        if not self.oidc_issuer:
            return
        check_url("consoleOidcIssuer", self.oidc_issuer, hint)
        require_https("consoleOidcIssuer", self.oidc_issuer)
        for name, value in (
            ("consoleUrl", self.url),
            ("consoleOidcClientId", self.oidc_client),
            ("consoleOidcRoles", self.oidc_roles),
        ):
            if not value:
                raise ConfigError(f"consoleOidcIssuer needs {name}", hint="see the guide of the console")
        self.list_oidc_roles()

    def list_oidc_roles(self) -> dict[str, Role]:
        """Return the role of each group of the provider; `*` is every user."""
        roles: dict[str, Role] = {}
        for part in filter(None, map(str.strip, self.oidc_roles.split(";"))):
            group, sign, role = part.rpartition("=")
            if not sign or not group.strip():
                raise ConfigError(f"consoleOidcRoles: {part[:80]!r} is not GROUP=ROLE", hint="for example `*=viewer`")
            roles[group.strip()] = read_role(role.strip())
        return roles

    def list_hosts(self) -> list[str]:
        """Return the configured names of the console."""
        own = urlsplit(self.url).hostname if self.url else None
        return [*filter(None, map(str.strip, self.hosts.split(","))), *([own] if own else [])]


def require_https(name: str, url: str) -> None:
    """Raise ConfigError for a URL whose answers others could change. On this machine nobody is in between."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ConfigError(f"{name}={url[:200]}: expected https://", hint="log-ins over plain HTTP can be forged")
