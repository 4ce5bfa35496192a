"""Finding servers: the name servers (an option, the environment, an HTTP address server), and the IP of a host name."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import socket

from eruca._ground.backoff import Backoff
from eruca._wire.host import pack_ip
from eruca.errors import ConfigError, WireError

log = logging.getLogger(__name__)

_ADDRESS_SERVER_SECONDS = 3.0
_ADDRESS_SERVER_BYTES_MAX = 64 * 1024
_ADDRESS_SERVER_INTERVAL_S = 120.0
# How long a host name may take to get an address.
NAME_S = 30.0
_NAME_PAUSES = Backoff(0.2, 2.0)
_ADDRESS = re.compile(r"\S+:(\d{1,5})", re.ASCII)
_PORT_MAX = 65535


def is_address(text: str) -> bool:
    """Whether a text is host:port."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) <= _PORT_MAX


def split_addresses(text: str) -> list[str]:
    """Split a list of addresses separated by `;` or `,`."""
    return [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]


async def find_ip(host: str, patience_s: float = NAME_S) -> str:
    """Return the IP address of a host name; an address as it is.

    Where names are made with the machine (Kubernetes, Compose), a name may be known a few seconds after the start.
    """
    try:
        pack_ip(host)
    except WireError:
        pass
    else:
        return host
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    for tries in itertools.count(1):
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            if loop.time() >= deadline:
                raise ConfigError(
                    f"the name {host} has no address: {error}",
                    hint="set brokerIP1 to an IP address, or to a name that this machine and the clients can resolve",
                ) from error
            await asyncio.sleep(_NAME_PAUSES.after(tries))
        else:
            # As Java does: the IPv4 address, if there is one.
            return str(min(found, key=lambda each: each[0] is not socket.AF_INET)[4][0])
    raise AssertionError("the loop ends with a result or an error")


def check_addresses(key: str, text: str) -> None:
    """Refuse a list of addresses that Java would refuse at its start."""
    for part in split_addresses(text):
        if not is_address(part):
            raise ConfigError(
                f"{key}={text}: {part!r} is not host:port",
                hint=f"for example 127.0.0.1:9876; ports are 1 to {_PORT_MAX}",
            )


class NameServers:
    """The current name servers: from the option, the environment, or an address server named by the user."""

    def __init__(self, told: str, address_server: str = "") -> None:
        self.addresses = split_addresses(told or os.environ.get("NAMESRV_ADDR", ""))
        self._address_server = address_server
        # As in Java, the address server is asked only if neither the option nor the environment is set.
        self._are_told = bool(self.addresses)
        self._asked_at = float("-inf")

    async def refresh(self) -> None:
        """Ask the address server, if there is one and it is due."""
        url = self._address_server
        loop = asyncio.get_running_loop()
        if not url or self._are_told or loop.time() - self._asked_at < _ADDRESS_SERVER_INTERVAL_S:
            return
        try:
            text = await loop.run_in_executor(None, fetch_addresses, url)
        except (OSError, ValueError) as error:
            log.error("the address server %s does not answer: %s", url, error)
            return
        self._asked_at = loop.time()
        found = split_addresses(text)
        if found and found != self.addresses:
            log.info("name servers are now %s", "; ".join(found))
            self.addresses = found


def fetch_addresses(url: str) -> str:
    """Fetch the response of an address server; blocks."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("an address server needs an http:// or https:// URL")
    # Imported here, because it is a fifth of a client's start time, and few use an address server.
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=_ADDRESS_SERVER_SECONDS) as answer:
            content: bytes = answer.read(_ADDRESS_SERVER_BYTES_MAX)
    except HTTPException as error:
        raise ValueError(f"the response is not HTTP: {error!r}") from error
    return content.decode("utf-8", "replace").strip()
