"""A small etcd client: keys, leases, transactions and watches over the JSON gateway of its client port.

Besides gRPC, etcd serves JSON over plain HTTP, so an HTTP client is all that is needed (`pip install eruca[etcd]`). In
that JSON, keys and values are base64 and 64-bit numbers are strings; both stay inside this module.

Errors tell what is known about the call. `ConnectFailed`: no endpoint was reached, so nothing happened. `CallTimeout`
and `ConnectionLost`: it may have happened or may still happen. `EtcdRefused`: etcd rejected it.

Calls go to one endpoint until it fails, then to the next. A call that may have been executed is never repeated here:
only the caller knows whether it is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

from eruca._ground.badjson import BAD_JSON
from eruca._ground.limits import ETCD_ANSWER_BYTES_MAX
from eruca.errors import CallTimeout, ConfigError, ConnectFailed, ConnectionLost, EtcdRefused

if TYPE_CHECKING:
    import httpx

_T = TypeVar("_T")

# gRPC's NOT_FOUND: an expired lease.
_NOT_FOUND: Final = 5
# This endpoint cannot serve the cluster now (no leader, no quorum): another one may.
_UNAVAILABLE: Final = frozenset({502, 503, 504})
# Responses are not decompressed: a few compressed bytes could become gigabytes.
_HEADERS: Final = {"Accept-Encoding": "identity"}


class KeyValue(msgspec.Struct, frozen=True):
    """A key as stored in etcd."""

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    # How often it was written since it was created.
    version: int = 0
    lease: int = 0


class Lease(msgspec.Struct, frozen=True):
    """A lease and its time to live in seconds; etcd may grant more than was requested."""

    id: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys of a prefix at one revision."""

    revision: int
    items: Mapping[str, KeyValue]


@dataclass(frozen=True, slots=True)
class Change:
    """A key was put, or (`now` is None) deleted, at a revision."""

    key: str
    revision: int
    now: KeyValue | None


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a transaction, and the revision of etcd after it."""

    succeeded: bool
    revision: int


@dataclass(slots=True)
class Transaction:
    """Comparisons, and the operations to execute if all of them hold; otherwise nothing is executed."""

    compare: list[dict[str, Any]] = field(default_factory=list)
    success: list[dict[str, Any]] = field(default_factory=list)

    def expect(self, key: str, revision: int) -> Transaction:
        """Require that the key was last changed at this revision; 0: that it does not exist."""
        self.compare.append({"key": key.encode(), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)})
        return self

    def put(self, key: str, value: bytes, lease: int = 0) -> Transaction:
        """Write a key."""
        self.success.append({"request_put": {"key": key.encode(), "value": value, "lease": str(lease)}})
        return self

    def delete(self, key: str) -> Transaction:
        """Delete a key."""
        self.success.append({"request_delete_range": {"key": key.encode()}})
        return self


# --- responses ----------------------------------------------------------------------------------------------------


class _Header(msgspec.Struct):
    revision: int = 0


class _RangeAnswer(msgspec.Struct):
    header: _Header
    kvs: list[KeyValue] = []


class _WriteAnswer(msgspec.Struct):
    header: _Header
    succeeded: bool = False


class _GrantAnswer(msgspec.Struct):
    ID: int
    TTL: int


class _Kept(msgspec.Struct):
    TTL: int = 0


class _KeepAnswer(msgspec.Struct):
    result: _Kept


class _Event(msgspec.Struct):
    kv: KeyValue
    type: str = "PUT"


class _Watched(msgspec.Struct):
    header: _Header = msgspec.field(default_factory=_Header)
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[_Event] = []


class _WatchAnswer(msgspec.Struct):
    result: _Watched | None = None
    error: Any = None


class _Refusal(msgspec.Struct):
    error: str = ""
    message: str = ""
    code: int = 0


class EtcdClient:
    """Calls to one etcd cluster."""

    def __init__(self, endpoints: Sequence[str], *, timeout_s: float = 1.0) -> None:
        self._httpx = _import_httpx()
        self._endpoints = [_check_endpoint(endpoint) for endpoint in endpoints]
        if not self._endpoints:
            raise ConfigError("no etcd endpoint is given", hint="set etcdEndpoints to http://host:port;...")
        self._current = 0
        self._timeout_s = timeout_s
        # It logs a line for every call, and there are several per second.
        requests = logging.getLogger("httpx")
        if requests.level == logging.NOTSET:
            requests.setLevel(logging.WARNING)
        # The system's certificates are read from disk only where they are needed.
        secure = any(endpoint.startswith("https:") for endpoint in self._endpoints)
        # Proxies from the environment must not come between a broker and its etcd.
        self._client = self._httpx.AsyncClient(
            headers=_HEADERS,
            timeout=timeout_s,
            trust_env=False,
            verify=ssl.create_default_context() if secure else False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    # -- leases ------------------------------------------------------------------------------------------------------

    async def grant_lease(self, seconds: int) -> Lease:
        """Get a new lease of at least this many seconds."""
        answer = await self._call("/v3/lease/grant", {"TTL": str(seconds)}, _GrantAnswer)
        return Lease(answer.ID, float(answer.TTL))

    async def keep_lease(self, lease: int) -> float:
        """Renew a lease; return its remaining seconds, 0 if it has expired."""
        answer = await self._call("/v3/lease/keepalive", {"ID": str(lease)}, _KeepAnswer)
        return float(answer.result.TTL)

    async def revoke_lease(self, lease: int) -> None:
        """Revoke a lease and with it all its keys; an expired lease is not an error."""
        try:
            await self._call("/v3/lease/revoke", {"ID": str(lease)}, _WriteAnswer)
        except EtcdRefused as error:
            if error.code != _NOT_FOUND:
                raise

    # -- keys --------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> KeyValue | None:
        """Read one key, as agreed by the majority."""
        answer = await self._call("/v3/kv/range", {"key": key.encode()}, _RangeAnswer)
        return answer.kvs[0] if answer.kvs else None

    async def get_prefix(self, prefix: str) -> Snapshot:
        """Read all keys with this prefix, at one revision, as agreed by the majority."""
        answer = await self._call("/v3/kv/range", _range(prefix), _RangeAnswer)
        return Snapshot(answer.header.revision, {_read_key(item): item for item in answer.kvs})

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Write a key; return the revision."""
        body = {"key": key.encode(), "value": value, "lease": str(lease)}
        return (await self._call("/v3/kv/put", body, _WriteAnswer)).header.revision

    async def delete_prefix(self, prefix: str) -> int:
        """Delete all keys with this prefix; return the revision."""
        return (await self._call("/v3/kv/deleterange", _range(prefix), _WriteAnswer)).header.revision

    async def commit(self, transaction: Transaction) -> Result:
        """Execute a transaction."""
        body = {"compare": transaction.compare, "success": transaction.success}
        answer = await self._call("/v3/kv/txn", body, _WriteAnswer)
        return Result(answer.succeeded, answer.header.revision)

    # -- watching ----------------------------------------------------------------------------------------------------

    async def watch(self, prefix: str, revision: int) -> AsyncIterator[tuple[int, list[Change]]]:
        """Yield the revision of etcd and the changes from a revision on, each change once and in order.

        It continues at another endpoint automatically. It ends with `EtcdRefused` if etcd no longer has the changes
        from there on: read the prefix again. If no endpoint can be reached, it raises the error of the last one.
        """
        failures = 0
        while True:
            try:
                async for watched in self._watch_once(prefix, revision):
                    failures = 0
                    if watched.events:
                        revision = watched.events[-1].kv.mod_revision + 1
                    yield watched.header.revision, [_read_change(event) for event in watched.events]
            except (ConnectFailed, ConnectionLost, CallTimeout):
                failures += 1
                if failures > len(self._endpoints):
                    raise

    async def _watch_once(self, prefix: str, revision: int) -> AsyncIterator[_Watched]:
        endpoint = self._current
        # No read timeout: nothing may happen for days. An endpoint without a leader reports it (hasleader); one that
        # vanished silently is detected by calls, not here.
        timeout = self._httpx.Timeout(self._timeout_s, read=None)
        body = msgspec.json.encode({"create_request": {**_range(prefix), "start_revision": str(revision)}})
        headers = {"Grpc-Metadata-hasleader": "true"}
        url = f"{self._endpoints[endpoint]}/v3/watch"
        try:
            async with self._client.stream("POST", url, content=body, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    self._refuse(endpoint, response.status_code, await _read(response))
                async for line in _read_lines(response):
                    answer = _decode(line, _WatchAnswer)
                    if answer.result is None:
                        self._turn(endpoint)
                        raise ConnectionLost(f"etcd ended the watch: {answer.error}")
                    if answer.result.canceled:
                        if answer.result.compact_revision:
                            raise EtcdRefused(f"etcd no longer has revision {revision}", code=0)
                        self._turn(endpoint)
                        raise ConnectionLost(f"etcd ended the watch: {answer.result.cancel_reason}")
                    yield answer.result
        except self._httpx.HTTPError as error:
            self._turn(endpoint)
            raise ConnectionLost(f"the watch at {self._endpoints[endpoint]} ended: {_describe(error)}") from error
        self._turn(endpoint)
        raise ConnectionLost(f"{self._endpoints[endpoint]} ended the watch")

    # -- calls -------------------------------------------------------------------------------------------------------

    async def _call(self, path: str, body: Mapping[str, Any], answer: type[_T]) -> _T:
        content = msgspec.json.encode(body)
        reason = ""
        for _ in self._endpoints:
            endpoint = self._current
            url = self._endpoints[endpoint]
            try:
                status, found = await self._post(url + path, content)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
                # It was never sent, so the next endpoint may be asked.
                self._turn(endpoint)
                reason = f"{url}: {_describe(error)}"
                continue
            except self._httpx.TimeoutException as error:
                self._turn(endpoint)
                raise CallTimeout(f"etcd at {url} did not answer within {self._timeout_s:g} s") from error
            except self._httpx.HTTPError as error:
                self._turn(endpoint)
                raise ConnectionLost(f"etcd at {url}: {_describe(error)}") from error
            except ConnectionLost:
                self._turn(endpoint)
                raise
            if status != 200:
                self._refuse(endpoint, status, found)
            return _decode(found, answer)
        raise ConnectFailed(f"etcd cannot be reached: {reason}")

    async def _post(self, url: str, content: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the body of its response."""
        async with self._client.stream("POST", url, content=content) as response:
            return response.status_code, await _read(response)

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


async def open_etcd(endpoints: Sequence[str], *, timeout_s: float = 1.0) -> EtcdClient:
    """Create a client without blocking the loop for what it reads from disk first."""
    return await asyncio.to_thread(EtcdClient, endpoints, timeout_s=timeout_s)


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


def split_endpoints(text: str) -> list[str]:
    """Split the option etcdEndpoints."""
    return [endpoint for endpoint in text.replace(",", ";").split(";") if endpoint.strip()]


def _range(prefix: str) -> dict[str, Any]:
    """Build the range of every key with this prefix: up to the prefix with its last byte incremented."""
    begin = prefix.encode()
    return {"key": begin, "range_end": begin[:-1] + bytes([begin[-1] + 1])}


def _read_change(event: _Event) -> Change:
    is_put = event.type == "PUT"
    return Change(_read_key(event.kv), event.kv.mod_revision, event.kv if is_put else None)


def _read_key(item: KeyValue) -> str:
    try:
        return item.key.decode()
    except UnicodeDecodeError as error:
        raise ConnectionLost(f"etcd returned an invalid key: {error}") from error


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


def _decode(content: bytes, answer: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=answer, strict=False)
    except BAD_JSON as error:
        raise ConnectionLost(f"etcd returned an invalid response: {error}") from error


def _describe(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
