"""URLs that users configure. They are shown in logs, errors and printed options, so they must not contain a secret."""

from __future__ import annotations

from urllib.parse import urlsplit

from eruca.errors import ConfigError


def check_url(name: str, url: str, hint: str, *, may_have_query: bool = False) -> None:
    """Check an HTTP URL. Raises ConfigError, which shows neither a user nor a query, with a hint where to put them."""
    shown = url.partition("?")[0].rpartition("@")[2]
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_http = False
    if not is_http:
        raise ConfigError(f"{name}={shown!r}: expected a URL that starts with http:// or https://")
    found = "a user or password" if "@" in parts.netloc else "a query" if parts.query and not may_have_query else ""
    if found:
        raise ConfigError(f"{name}: the URL of {shown!r} contains {found}, which logs would show", hint=hint)
