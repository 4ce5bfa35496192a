"""Attackers: frames made by hand, as an exploit makes them, and the servers they are sent to."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._wire.frame import make_request
from eruca._wire.signature import Credentials
from tests.integration.broker.peer import find_port
from tests.patience import PATIENCE_S

SMALL = StoreOptions(
    commitlog_segment_bytes=1 << 20, consumequeue_segment_bytes=2000, index_slots=500, index_entries=2000
)
_PREFIX = struct.Struct(">iI")


def make_frame(code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", opaque: int = 1) -> bytes:
    """The bytes of a request, written without any code of ours."""
    header: dict[str, Any] = {
        "code": code,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 405,
    }
    if fields is not None:
        header["extFields"] = dict(fields)
    data = json.dumps(header).encode()
    return _PREFIX.pack(4 + len(data) + len(body), len(data)) + data + body


def sign_fields(code: int, fields: Mapping[str, str], body: bytes, account: Credentials) -> dict[str, str]:
    """The fields of a request with a signature."""
    command = make_request(code, None, body)
    command.ext = dict(fields)
    account.sign(command)
    return command.ext_dict()


@dataclass
class Heard:
    """A response."""

    code: int
    remark: str
    fields: dict[str, str]
    body: bytes

    @property
    def everything(self) -> bytes:
        """All of it that a peer can read."""
        return f"{self.remark} {self.fields}".encode() + self.body


class Attacker:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._opaque = 0

    async def ask(self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Heard:
        """Send a request and return its response."""
        self._opaque += 1
        self._writer.write(make_frame(code, fields, body, self._opaque))
        while True:
            opaque, heard = await self._read()
            if opaque == self._opaque:
                return heard

    async def ask_blindly(self, code: int, fields: Mapping[str, str], body: bytes, probe: int) -> Heard | None:
        """Send a request that may get no response: then that of the request `probe` behind it comes first."""
        self._opaque += 2
        frames = make_frame(code, fields, body, self._opaque - 1) + make_frame(probe, {}, b"", self._opaque)
        self._writer.write(frames)
        found = None
        while True:
            opaque, heard = await self._read()
            if opaque == self._opaque - 1:
                found = heard
            if opaque == self._opaque:
                return found

    async def _read(self) -> tuple[int, Heard]:
        async with asyncio.timeout(PATIENCE_S):
            total, word = _PREFIX.unpack(await self._reader.readexactly(_PREFIX.size))
            data = await self._reader.readexactly(total - 4)
        size = word & 0xFFFFFF
        header = json.loads(data[:size])
        heard = Heard(header["code"], header.get("remark") or "", header.get("extFields") or {}, data[size:])
        return (-1 if not header["flag"] & 1 else header["opaque"]), heard

    def close(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()


@asynccontextmanager
async def open_attacker(address: str) -> AsyncIterator[Attacker]:
    """A connection to a server."""
    host, _, port = address.rpartition(":")
    attacker = Attacker(*await asyncio.open_connection(host, int(port)))
    try:
        yield attacker
    finally:
        attacker.close()


@dataclass
class Victims:
    """A name server and a broker, with their files somewhere below a directory."""

    top: Path
    nameserver: NameServer
    broker: Broker

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return self.top / "a" / "b" / "c" / "store"

    def list_paths(self) -> set[str]:
        """Everything below the directory. Blocks."""
        return {str(path.relative_to(self.top)) for path in self.top.rglob("*")}

    def read_files(self) -> dict[str, bytes]:
        """The content of all files that are not data of messages. Blocks."""
        return {
            str(path.relative_to(self.top)): path.read_bytes()
            for path in self.top.rglob("*")
            if path.is_file() and path.stat().st_size < 100_000
        }


@asynccontextmanager
async def run_victims(
    top: Path, for_nameserver: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Victims]:
    """Start both, and stop them at the end."""
    home = top / "a" / "b" / "c"
    paths = {"kv_config_path": str(home / "kvConfig.json"), "config_store_path": str(home / "namesrv.properties")}
    nameserver = NameServer(NameServerOptions(**{"listen_port": 0, **paths, **(for_nameserver or {})}))
    await nameserver.start()
    chosen = BrokerOptions(**{"port": find_port(), "nameservers": nameserver.address, **options})
    broker = Broker(chosen, SMALL, home / "store", kept_options=home / "broker.conf")
    try:
        await broker.start()
        yield Victims(top, nameserver, broker)
    finally:
        await broker.stop()
        await nameserver.stop()
