"""The JSON gateway of etcd: calls over HTTP to one of several endpoints, with a user and TLS where etcd wants them.

Calls go to one endpoint until it fails, then to the next. A call that may have been executed is never repeated here:
only the caller knows whether it is idempotent.

A user gets a token for its password. etcd forgets it when it was not used for some minutes, when etcd restarts, and
when users change; it then refuses calls, which are repeated once with a new token.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

import msgspec

from eruca._ground.badjson import BAD_JSON
from eruca._ground.limits import ETCD_ANSWER_BYTES_MAX
from eruca._net.tls import Tls, explain_failure, make_client_context
from eruca.errors import CallTimeout, ConfigError, ConnectFailed, ConnectionLost, EtcdRefused

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

T = TypeVar("T")

# gRPC's UNAUTHENTICATED: the token is unknown.
_UNAUTHENTICATED: Final = 16
# The users changed since the token was made; it has no code of its own.
_OLD_TOKEN: Final = "revision of auth store is old"
# This endpoint cannot serve the cluster now (no leader, no quorum): another one may.
_UNAVAILABLE: Final = frozenset({502, 503, 504})
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
# Responses are not decompressed: a few compressed bytes could become gigabytes.
_HEADERS: Final = {"Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdLogin:
    """How to log in to etcd: a user, and the files of TLS."""

    user: str = ""
    password: str = field(default="", repr=False)
    # CA certificates to trust; empty: the system's.
    ca: str = ""
    # The certificate to present, and its key.
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if bool(self.user) != bool(self.password):
            missing = "etcdPassword" if self.user else "etcdUser"
            raise ConfigError("etcdUser and etcdPassword belong together", hint=f"set {missing} too")
        if self.key and not self.certificate:
            raise ConfigError("etcdKeyFile needs a certificate", hint="set etcdCertFile too")


@dataclass(frozen=True, slots=True)
class _Token:
    token: str = field(repr=False)


class _Refusal(msgspec.Struct):
    error: str = ""
    message: str = ""
    code: int = 0


class EtcdGateway:
    """Calls to one etcd cluster."""

    def __init__(self, endpoints: Sequence[str], login: EtcdLogin, timeout_s: float) -> None:
        """Blocks while it reads the files of TLS."""
        self._httpx = _import_httpx()
        self._endpoints = [_check_endpoint(endpoint) for endpoint in endpoints]
        if not self._endpoints:
            raise ConfigError("no etcd endpoint is given", hint="set etcdEndpoints to http://host:port;...")
        self._login = login
        self._token = ""
        self._logging_in = asyncio.Lock()
        self._current = 0
        self._timeout_s = timeout_s
        # It logs a line for every call, and there are several per second.
        requests = logging.getLogger("httpx")
        if requests.level == logging.NOTSET:
            requests.setLevel(logging.WARNING)
        # Proxies from the environment must not come between a broker and its etcd.
        self._client = self._httpx.AsyncClient(
            headers=_HEADERS, timeout=timeout_s, trust_env=False, verify=self._make_context()
        )

    def _make_context(self) -> ssl.SSLContext | bool:
        """Make the context of TLS; the system's certificates are read from disk only where they are needed."""
        login = self._login
        plain = [endpoint for endpoint in self._endpoints if not endpoint.startswith("https:")]
        if plain and (login.ca or login.certificate):
            raise ConfigError(f"etcdCaFile and etcdCertFile need TLS, but {plain[0]} is plain", hint="use https://")
        if login.user and any(urlsplit(endpoint).hostname not in _LOOPBACK for endpoint in plain):
            log.warning("the password of etcd user %s is sent without TLS; use https:// in etcdEndpoints", login.user)
        if len(plain) == len(self._endpoints):
            return False
        return make_client_context(Tls(ca=login.ca, certificate=login.certificate, key=login.key))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    @property
    def size(self) -> int:
        """The number of endpoints."""
        return len(self._endpoints)

    # -- calls -------------------------------------------------------------------------------------------------------

    async def call(self, path: str, body: Mapping[str, Any], answer: type[T]) -> T:
        """Send a request and return its response."""
        content = msgspec.json.encode(body)
        if not self._login.user:
            return decode(await self._send(path, content), answer)
        token = await self._get_token()
        try:
            found = await self._send(path, content, token)
        except EtcdRefused as error:
            if not _is_about_token(error):
                raise
            # It was refused before it was executed.
            self._forget_token(token)
            found = await self._send(path, content, await self._get_token())
        return decode(found, answer)

    async def _get_token(self) -> str:
        """Return the token of the user; it logs in if there is none."""
        async with self._logging_in:
            if not self._token:
                body = {"name": self._login.user, "password": self._login.password}
                found = await self._send("/v3/auth/authenticate", msgspec.json.encode(body))
                self._token = decode(found, _Token).token
            return self._token

    def _forget_token(self, token: str) -> None:
        """Log in again before the next call, unless another call already did."""
        if self._token == token:
            self._token = ""

    async def _send(self, path: str, content: bytes, token: str = "") -> bytes:
        """Send a request to the first endpoint that can be reached; return the body of its response."""
        reason = ""
        for _ in self._endpoints:
            endpoint = self._current
            url = self._endpoints[endpoint]
            try:
                status, found = await self._post(url + path, content, token)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
                # It was never sent, so the next endpoint may be asked.
                self._turn(endpoint)
                reason = f"{url}: {_describe(error)}"
                continue
            except self._httpx.TimeoutException as error:
                self._turn(endpoint)
                raise CallTimeout(f"etcd at {url} did not answer within {self._timeout_s:g} s") from error
            # httpx does not convert the error of a server that refuses our certificate after the handshake.
            except (self._httpx.HTTPError, ssl.SSLError) as error:
                self._turn(endpoint)
                raise ConnectionLost(f"etcd at {url}: {_describe(error)}") from error
            except ConnectionLost:
                self._turn(endpoint)
                raise
            if status != 200:
                self._refuse(endpoint, status, found)
            return found
        raise ConnectFailed(f"etcd cannot be reached: {reason}")

    async def _post(self, url: str, content: bytes, token: str) -> tuple[int, bytes]:
        """Send a request; return the status and the body of its response."""
        async with self._client.stream("POST", url, content=content, headers=_authorize(token)) as response:
            return response.status_code, await _read(response)

    # -- endless responses -------------------------------------------------------------------------------------------

    async def stream(
        self, path: str, body: Mapping[str, Any], answer: type[T], find_end: Callable[[T], str]
    ) -> AsyncIterator[T]:
        """Send a request to the current endpoint and yield its responses, one per line; it ends with an error.

        `find_end` returns why a response is the last one, or an empty text.
        """
        endpoint = self._current
        token = await self._get_token() if self._login.user else ""
        # No read timeout: nothing may happen for days. An endpoint without a leader reports it (hasleader); one that
        # vanished silently is detected by calls, not here.
        timeout = self._httpx.Timeout(self._timeout_s, read=None)
        headers = {"Grpc-Metadata-hasleader": "true", **_authorize(token)}
        where, content = self._endpoints[endpoint], msgspec.json.encode(body)
        try:
            async with self._client.stream(
                "POST", where + path, content=content, headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    self._refuse(endpoint, response.status_code, await _read(response))
                async for line in _read_lines(response):
                    found = decode(line, answer)
                    if why := find_end(found):
                        raise ConnectionLost(f"etcd ended the watch: {why}")
                    yield found
            raise ConnectionLost(f"{where} ended the watch")
        except (self._httpx.HTTPError, ssl.SSLError, ConnectionLost) as error:
            self._turn(endpoint)
            # A watch does not learn that its token is invalid, only that it is denied.
            self._forget_token(token)
            if isinstance(error, ConnectionLost):
                raise
            raise ConnectionLost(f"the watch at {where} ended: {_describe(error)}") from error
        except EtcdRefused as error:
            if not _is_about_token(error):
                raise
            self._forget_token(token)
            raise ConnectionLost(str(error)) from error

    def _turn(self, failed: int) -> None:
        """Switch to the next endpoint, unless another call already has."""
        if self._current == failed:
            self._current = (failed + 1) % len(self._endpoints)

    def _refuse(self, endpoint: int, status: int, content: bytes) -> NoReturn:
        try:
            refusal = msgspec.json.decode(content, type=_Refusal, strict=False)
        except BAD_JSON:
            refusal = _Refusal(error=f"HTTP status {status}")
        text = refusal.error or refusal.message
        if status in _UNAVAILABLE:
            self._turn(endpoint)
            raise ConnectionLost(f"etcd at {self._endpoints[endpoint]}: {text}")
        raise EtcdRefused(f"etcd refused: {text}", code=refusal.code)


def _is_about_token(error: EtcdRefused) -> bool:
    return error.code == _UNAUTHENTICATED or _OLD_TOKEN in str(error)


def _authorize(token: str) -> dict[str, str]:
    return {"Authorization": token} if token else {}


def _import_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise ConfigError("the etcd client needs the httpx library", hint="pip install eruca[etcd]") from None
    return httpx


def _check_endpoint(endpoint: str) -> str:
    """Normalise an endpoint; like etcd's own tools, it treats one without scheme as http."""
    text = endpoint.strip()
    if "://" not in text:
        text = f"http://{text}"
    scheme, _, place = text.rstrip("/").partition("://")
    if scheme not in ("http", "https") or not place or "@" in place:
        raise ConfigError(f"not an etcd endpoint: {scheme}://{place.rpartition('@')[2]}", hint="http://host:port")
    return f"{scheme}://{place}"


async def _read(response: httpx.Response) -> bytes:
    """Read the body of a response, up to the size that a response to us can have."""
    found = bytearray()
    async for piece in response.aiter_raw():
        found += piece
        _check_size(len(found))
    return bytes(found)


async def _read_lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of an endless response."""
    rest = b""
    async for piece in response.aiter_raw():
        *lines, rest = (rest + piece).split(b"\n")
        _check_size(len(rest))
        for line in lines:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


def _check_size(size: int) -> None:
    if size > ETCD_ANSWER_BYTES_MAX:
        raise ConnectionLost(f"etcd returned {size} bytes, more than any expected response")


def decode(content: bytes, answer: type[T]) -> T:
    """Decode a response. Raises ConnectionLost if it is not one."""
    try:
        return msgspec.json.decode(content, type=answer, strict=False)
    except BAD_JSON as error:
        raise ConnectionLost(f"etcd returned an invalid response: {error}") from error


def _describe(error: httpx.HTTPError | ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLError):
        return explain_failure(error)
    return str(error) or type(error).__name__
