"""Schemas by their id: those of a registry, or those of a local directory or file.

A body carries the id of the schema it was written with. Tasks look it up when they see it for the first time, and keep
what they found. An id that does not exist makes a body bad; a registry that does not answer fails the task, because the
bodies are not at fault.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from eruca._ground.durations import Duration, to_seconds
from eruca._ground.limits import SCHEMA_FILE_BYTES_MAX, SCHEMAS_MAX
from eruca._net.tls import Tls, make_client_context
from eruca._schemas.bodies import BadBody
from eruca.errors import ConfigError

_Schema = TypeVar("_Schema")

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
# The kind of a schema in a directory, by the end of its file's name.
_SUFFIXES: Final = {".avsc": AVRO, ".proto": PROTOBUF, ".desc": PROTOBUF}
# An unknown id is asked for again after this time: it may have been registered in the meantime.
_UNKNOWN_S: Final = 10.0
_SCHEMES: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class SchemaRegistry:
    """Where schemas are found by their id: a registry that has the REST API of Confluent's, or local files.

    >>> registry = SchemaRegistry("https://registry:8081", login_file="/etc/registry.yml", tls=Tls(ca="ca.pem"))
    >>> registry = SchemaRegistry("schemas/")  # 7.avsc, 8.avsc, or 7.proto, 8.desc
    >>> registry = SchemaRegistry("schemas.json")  # {"7": {"type": "record", ...}, "8": ...}

    Tasks ask the registry themselves. User and password are not sent with the query: each process reads them from
    `login_file` (YAML or JSON with `user` and `password`, on every node), or from ERUCA_REGISTRY_USER and
    ERUCA_REGISTRY_PASSWORD. Local files are read where the query is planned; no other node needs them.
    """

    place: str | Path
    _: KW_ONLY
    login_file: str | Path = ""
    # How to connect to an https:// address; None: the certificate must be signed by a CA of the system.
    tls: Tls | None = None
    # How long one request may take.
    timeout: Duration = 10.0
    # How often a failed request is tried again.
    retries: int = 4

    def __post_init__(self) -> None:
        to_seconds("timeout", self.timeout, at_least=0.001)
        retries: object = self.retries
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ConfigError(f"retries={self.retries!r}: expected a whole number of at least 0")
        if _is_remote(self.place):
            self._check_address()
        elif self.login_file or self.tls is not None:
            raise ConfigError(
                f"the registry {self.place} is a local path, which needs neither login_file nor tls",
                hint="a registry is named by its address, for example https://registry:8081",
            )

    def _check_address(self) -> None:
        parts = urlsplit(str(self.place))
        where = f"the address of the registry, {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()},"
        if parts.scheme not in _SCHEMES:
            raise ConfigError(f"{where} does not begin with http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise ConfigError(
                f"{where} contains a user or password, which would be sent with the query",
                hint="set ERUCA_REGISTRY_USER and ERUCA_REGISTRY_PASSWORD, or give login_file=",
            )
        try:
            wrong = not parts.hostname or parts.port == 0
        except ValueError:
            wrong = True
        if wrong or parts.query or parts.fragment:
            raise ConfigError(f"{where} is not an address", hint="for example https://registry:8081")
        if self.tls is not None:
            if parts.scheme != "https":
                raise ConfigError(f"{where} is plain, but tls= is given", hint="use https://")
            make_client_context(self.tls)  # a wrong file fails here, not in a task


@dataclass(frozen=True)
class Registered:
    """A schema as a registry or a file has it, with those it refers to."""

    kind: str
    text: str
    # By the name under which the schema refers to them.
    references: tuple[tuple[str, Registered], ...] = ()
    # A local Protobuf file, compiled, with those it imports.
    descriptors: bytes = b""


class Schemas(Protocol):
    """Schemas by id, in one process."""

    def find(self, schema_id: int) -> Registered:
        """Return a schema. Raises BadBody if there is none, NetError or ConfigError if it cannot be asked for."""

    def find_latest(self, subject: str) -> Registered:
        """Return the newest schema of a subject. Raises ConfigError if there is none."""


class SchemaSource(Protocol):
    """Opens the schemas in a process; it is pickled and sent to the tasks."""

    def open(self) -> Schemas:
        """Return the schemas."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class RemoteSource:
    """A registry."""

    registry: SchemaRegistry

    def open(self) -> Schemas:
        """Return a client of the registry."""
        from eruca._schemas.registryclient import RegistryClient

        return RegistryClient(self.registry)


@dataclass(frozen=True)
class LocalSource:
    """The schemas of a directory or a file."""

    place: str
    schemas: tuple[tuple[int, Registered], ...]

    def open(self) -> Schemas:
        """Return the schemas."""
        return _LocalSchemas(self.place, dict(self.schemas))


def open_source(registry: SchemaRegistry) -> SchemaSource:
    """Return what is sent to the tasks: the address, or the content of local files. Raises ConfigError."""
    if _is_remote(registry.place):
        return RemoteSource(registry)
    path = Path(registry.place)
    if path.is_dir():
        return _read_directory(path)
    return _read_file(path)


def _is_remote(place: str | Path) -> bool:
    """Return whether this is an address, not a path."""
    return isinstance(place, str) and "://" in place


class _LocalSchemas:
    def __init__(self, place: str, by_id: Mapping[int, Registered]) -> None:
        self._place = place
        self._by_id = by_id

    def find(self, schema_id: int) -> Registered:
        found = self._by_id.get(schema_id)
        if found is None:
            raise BadBody(f"there is no schema {schema_id} in {self._place}")
        return found

    def find_latest(self, subject: str) -> Registered:
        raise ConfigError(
            f"{self._place} has schemas by id, but no subject {subject}", hint="give the schema to read with as a file"
        )


class SchemaCache(Generic[_Schema]):
    """Keeps what was made of schemas, or why nothing could be made of them, for a bounded number of ids."""

    def __init__(self, make: Callable[[int], _Schema], *, now: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._now = now
        self._made: OrderedDict[int, tuple[_Schema | None, str, float]] = OrderedDict()

    def get(self, schema_id: int) -> _Schema:
        """Return what is made of a schema. Raises BadBody, and what `make` raises otherwise."""
        known = self._made.get(schema_id)
        if known is None or (known[1] and self._now() - known[2] >= _UNKNOWN_S):
            known = self._made[schema_id] = self._try(schema_id)
            if len(self._made) > SCHEMAS_MAX:
                self._made.popitem(last=False)
        self._made.move_to_end(schema_id)
        schema, reason, _ = known
        if reason:
            raise BadBody(reason)
        return schema  # type: ignore[return-value]

    def _try(self, schema_id: int) -> tuple[_Schema | None, str, float]:
        try:
            return self._make(schema_id), "", 0.0
        except BadBody as error:
            return None, str(error), self._now()


# -- local files -------------------------------------------------------------------------------------------------------


def _read_directory(path: Path) -> LocalSource:
    """Read the files whose name is an id; others may be imported by them."""
    found: dict[int, Registered] = {}
    for file in sorted(path.iterdir()):
        kind = _SUFFIXES.get(file.suffix)
        if kind is None or not file.stem.isdecimal():
            continue
        if int(file.stem) in found:
            raise ConfigError(f"{path} has two files for schema {int(file.stem)}", hint=f"one of them is {file.name}")
        found[int(file.stem)] = _load_file(file, kind)
        _check_count(path, found)
    if not found:
        raise ConfigError(
            f"{path} has no schema", hint="files are named by the id of the schema: 7.avsc, 7.proto, 7.desc"
        )
    return LocalSource(str(path), tuple(found.items()))


def _load_file(file: Path, kind: str) -> Registered:
    if kind == AVRO:
        from eruca._schemas.avro import load_file

        return Registered(AVRO, load_file(file))
    from eruca._schemas.protobuf import load_descriptors

    return Registered(PROTOBUF, "", descriptors=load_descriptors(file))


def _read_file(path: Path) -> LocalSource:
    """Read a JSON object of schemas by id: Avro schemas, Protobuf files as text, or what a registry answers."""
    example = 'expected for example {"7": {"type": "record", ...}, "8": ...}'
    try:
        with path.open("rb") as file:
            data = file.read(SCHEMA_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"schema registry {path}: {error.strerror}", hint="a directory, a JSON file or https://..."
        ) from None
    if len(data) > SCHEMA_FILE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than {SCHEMA_FILE_BYTES_MAX} bytes")
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}", hint=example) from None
    if not isinstance(tree, dict) or not tree or not all(name.isdecimal() for name in tree):
        raise ConfigError(f"{path} is not an object of schemas by id", hint=example)
    found = {int(name): _read_value(path, name, value) for name, value in tree.items()}
    _check_count(path, found)
    return LocalSource(str(path), tuple(found.items()))


def _read_value(path: Path, name: str, value: Any) -> Registered:
    if isinstance(value, dict) and isinstance(value.get("schema"), str):
        if value.get("references"):
            raise ConfigError(f"{path}: schema {name} has references", hint="put them into the schema itself")
        return _compile(path, name, Registered(str(value.get("schemaType") or AVRO), value["schema"]))
    if isinstance(value, dict | list):
        return Registered(AVRO, json.dumps(value))
    if not isinstance(value, str):
        raise ConfigError(f"{path}: schema {name} is neither a schema nor a text")
    return _compile(path, name, Registered(AVRO if value.lstrip()[:1] in ("{", "[", '"') else PROTOBUF, value))


def _compile(path: Path, name: str, schema: Registered) -> Registered:
    """Compile a Protobuf schema here, so that tasks need no compiler."""
    if schema.kind != PROTOBUF:
        return schema
    from eruca._schemas.framedprotobuf import describe_files

    try:
        return Registered(PROTOBUF, "", descriptors=describe_files(schema))
    except BadBody as error:
        raise ConfigError(f"{path}: schema {name}: {error}") from None


def _check_count(path: Path, found: Mapping[int, Registered]) -> None:
    if len(found) > SCHEMAS_MAX:
        raise ConfigError(f"{path} has more than {SCHEMAS_MAX} schemas")
