"""Posting a report to a webhook: signed, to an address that was checked, without following where it leads."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import ssl
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from eruca._console.watching.targets import Targets, list_hosts
from eruca._ground.digits import read_digits
from eruca.errors import CallTimeout, ConnectFailed

TIMEOUT_S: Final = 10.0
_HEAD_BYTES_MAX: Final = 16_384
_PORTS: Final = {"http": 80, "https": 443}
_OK: Final = range(200, 300)


def sign(secret: str, sent_at: int, body: bytes) -> str:
    """Return the signature of a body: HMAC-SHA256 over the time, a dot and the body, in hex."""
    return hmac.new(secret.encode(), b"%d." % sent_at + body, hashlib.sha256).hexdigest()


class Poster:
    """Posts to URLs whose host is allowed."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._context: ssl.SSLContext | None = None

    async def post(self, url: str, secret: str, body: bytes, sent_at: int, delivery: int) -> None:
        """Post one body. Raises ConfigError if the target may not be reached, ConnectFailed if it does not accept.

        The name is resolved once, and the connection goes to the address that was checked: a second answer of the DNS
        cannot lead elsewhere. Redirects are not followed.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._post(url, secret, body, sent_at, delivery)
        except TimeoutError:
            raise CallTimeout(f"no answer within {TIMEOUT_S:g} s") from None
        except ssl.SSLError as error:
            raise ConnectFailed(f"TLS: {error.reason or error}") from None
        except (OSError, ValueError) as error:
            raise ConnectFailed(f"not reached: {error}") from None
        if status not in _OK:
            raise ConnectFailed(f"the webhook answered {status}")

    async def _post(self, url: str, secret: str, body: bytes, sent_at: int, delivery: int) -> int:
        parts = urlsplit(url)
        host, scheme = parts.hostname or "", parts.scheme
        port = parts.port or _PORTS[scheme]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        address = self._targets.choose(host, port, list_hosts(found))
        if scheme == "https" and self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context)
        is_secure = scheme == "https"
        reader, writer = await asyncio.open_connection(
            address,
            port,
            ssl=self._context if is_secure else None,
            server_hostname=host if is_secure else None,
            limit=_HEAD_BYTES_MAX,
        )
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            head = [
                f"POST {path} HTTP/1.1",
                f"Host: {parts.netloc}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                "User-Agent: eruca-console",
                "Connection: close",
                f"X-Eruca-Delivery: {delivery}",
                f"X-Eruca-Timestamp: {sent_at}",
            ]
            if secret:
                head.append(f"X-Eruca-Signature: sha256={sign(secret, sent_at, body)}")
            writer.write("\r\n".join([*head, "", ""]).encode("ascii") + body)
            await writer.drain()
            return _read_status(await reader.readline())
        finally:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()


def _read_status(line: bytes) -> int:
    words = line.decode("latin-1").split(" ", 2)
    status = read_digits(words[1].strip()) if len(words) > 1 and words[0].startswith("HTTP/1.") else None
    if status is None:
        raise ConnectFailed("its answer is not HTTP")
    return status
