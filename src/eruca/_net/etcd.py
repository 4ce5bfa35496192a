"""A small etcd client: keys, leases, transactions and watches over the JSON gateway of its client port.

Besides gRPC, etcd serves JSON over HTTP, so an HTTP client is all that is needed (`pip install eruca[etcd]`); the calls
are in `etcdgateway`. In that JSON, keys and values are base64 and 64-bit numbers are strings; both stay inside this
module.

Errors tell what is known about the call. `ConnectFailed`: no endpoint was reached, so nothing happened. `CallTimeout`
and `ConnectionLost`: it may have happened or may still happen. `EtcdRefused`: etcd rejected it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from eruca._net.etcdgateway import EtcdGateway, EtcdLogin
from eruca.errors import CallTimeout, ConnectFailed, ConnectionLost, EtcdRefused

# gRPC's NOT_FOUND: an expired lease.
_NOT_FOUND: Final = 5


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


class EtcdClient:
    """Calls to one etcd cluster."""

    def __init__(self, endpoints: Sequence[str], *, login: EtcdLogin | None = None, timeout_s: float = 1.0) -> None:
        """Blocks while it reads the files of TLS; see `open_etcd`."""
        self._gateway = EtcdGateway(endpoints, login or EtcdLogin(), timeout_s)
        self._call = self._gateway.call

    async def close(self) -> None:
        """Close all connections."""
        await self._gateway.close()

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
                if failures > self._gateway.size:
                    raise

    async def _watch_once(self, prefix: str, revision: int) -> AsyncIterator[_Watched]:
        def find_end(answer: _WatchAnswer) -> str:
            watched = answer.result
            if watched is None:
                return str(answer.error)
            if watched.canceled and watched.compact_revision:
                raise EtcdRefused(f"etcd no longer has revision {revision}", code=0)
            return watched.cancel_reason or "it was cancelled" if watched.canceled else ""

        body = {"create_request": {**_range(prefix), "start_revision": str(revision)}}
        async for answer in self._gateway.stream("/v3/watch", body, _WatchAnswer, find_end):
            assert answer.result is not None
            yield answer.result


async def open_etcd(endpoints: Sequence[str], *, login: EtcdLogin | None = None, timeout_s: float = 1.0) -> EtcdClient:
    """Create a client without blocking the loop for what it reads from disk first."""
    return await asyncio.to_thread(EtcdClient, endpoints, login=login, timeout_s=timeout_s)


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
