"""Whether a request was made by a page of this console: its Host, Origin and Sec-Fetch headers. No I/O.

A page elsewhere can make a browser send requests here. What it cannot do is set these headers. The Host also stops DNS
rebinding: there a name of the attacker's leads to our address, so names are accepted only if they are known.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

_SAFE: Final = frozenset({"GET", "HEAD"})
_OURS: Final = frozenset({"same-origin", "none"})


class Origins:
    """The names by which browsers may reach the console."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names` are host names beside `localhost`. Addresses need not be listed: rebinding needs a name."""
        self._names = frozenset({"localhost", *(name.lower().strip("[]").rstrip(".") for name in names if name)})

    def find_fault(self, method: str, headers: Mapping[str, str], *, secure: bool) -> str:
        """Return why a request is refused; nothing for one that is not. Names of headers are in lower case."""
        host = headers.get("host", "")
        if not self.knows(host):
            return f"this console is not known as {host[:100]!r}; add the name to consoleHosts"
        site = headers.get("sec-fetch-site", "")
        origin = headers.get("origin", "")
        if method in _SAFE:
            # Other sites may link to a page, but not load data.
            is_link = headers.get("sec-fetch-mode", "navigate") == "navigate"
            is_framed = headers.get("sec-fetch-dest", "") in ("iframe", "frame", "object", "embed")
            return "" if not site or site in _OURS or (is_link and not is_framed) else "another site asked for it"
        if site and site != "same-origin":
            return "another site sent it"
        if origin and not _is_same(origin, host, secure=secure):
            return "another site sent it"
        return ""

    def knows(self, host: str) -> bool:
        """Whether the value of a Host header is an address, or a name of this console."""
        try:
            parts = urlsplit(f"//{host}")
            name = (parts.hostname or "").rstrip(".")
            if parts.netloc != host or "@" in host or (parts.port or 0) < 0:
                return False
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def find_path(wanted: str) -> str:
    """Return where to go after the log-in: a path of this console, whatever was asked for."""
    is_path = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    is_plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted and " " not in wanted
    return wanted if is_path and is_plain and len(wanted) <= 2000 else "/"


def read_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """Return headers by name; None if one of those that matter here comes twice."""
    found: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        if key in found and key in ("host", "origin", "sec-fetch-site", "sec-fetch-mode"):
            return None
        found[key] = value.decode("latin-1")
    return found


def _is_same(origin: str, host: str, *, secure: bool) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme == ("https" if secure else "http") and parts.netloc.lower() == host.lower()
