"""Protobuf bodies that name their schema by its id in a registry, and their message by its place in that schema."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from eruca._ground.limits import MESSAGE_INDEXES_MAX
from eruca._schemas.bodies import BadBody, Decode
from eruca._schemas.framing import read_indexes, split_frame
from eruca._schemas.protobuf import NoCompiler, compile_file, make_parser, parse_files
from eruca._schemas.registry import PROTOBUF, Registered, SchemaCache, SchemaSource
from eruca.errors import ConfigError

# The name of the file that has no name of its own in a registry.
_MAIN: Final = "schema.proto"

# Full names of messages by their indexes.
_Names: TypeAlias = dict[tuple[int, ...], str]


def make_splitter(source: SchemaSource) -> Callable[[bytes], tuple[int, str, bytes]]:
    """Return a function that splits a body into the id of its schema, the name of its message, and the message."""
    schemas = source.open()
    written = SchemaCache(lambda schema_id: _find_names(schema_id, schemas.find(schema_id)))

    def split(body: bytes) -> tuple[int, str, bytes]:
        schema_id, at = split_frame(body)
        indexes, at = read_indexes(body, at)
        name = written.get(schema_id).get(indexes)
        if name is None:
            raise BadBody(f"schema {schema_id} has no message at {'/'.join(map(str, indexes))}")
        return schema_id, name, body[at:]

    return split


def make_framed_parser(source: SchemaSource) -> Decode:
    """Return a function that parses each body as the message that its schema says."""
    schemas, split = source.open(), make_splitter(source)
    parsers: SchemaCache[dict[str, Decode]] = SchemaCache(lambda schema_id: {})

    def parse(body: bytes) -> Any:
        schema_id, name, rest = split(body)
        known = parsers.get(schema_id)
        if name not in known:
            known[name] = make_parser(describe_files(schemas.find(schema_id)), name)
        return known[name](rest)

    return parse


# -- schemas of a registry ---------------------------------------------------------------------------------------------


def describe_files(registered: Registered) -> bytes:
    """Return the descriptors of a schema and of those it imports. Raises BadBody."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if registered.descriptors:
        return registered.descriptors
    if registered.kind != PROTOBUF:
        raise BadBody(f"it is {registered.kind}, not {PROTOBUF}")
    files: dict[str, Any] = {}
    is_compiled = all(_add_compiled(files, name, each) for name, each in _walk(_MAIN, registered))
    content: bytes = FileDescriptorSet(file=files.values()).SerializeToString() if is_compiled else _compile(registered)
    try:
        parse_files(content, "it")
    except ConfigError as error:
        raise BadBody(str(error.args[0])) from None
    return content


def _walk(name: str, registered: Registered) -> Iterator[tuple[str, Registered]]:
    """List a schema and those it imports, each after those it imports itself."""
    for below, each in registered.references:
        yield from _walk(below, each)
    yield name, registered


def _add_compiled(files: dict[str, Any], name: str, registered: Registered) -> bool:
    """Add the file of a schema that came compiled; returns False if it is text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(registered.text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return False
    # Others import it by the name of the reference, whatever its own.
    file.name = name
    files.setdefault(name, file)
    return True


def _compile(registered: Registered) -> bytes:
    """Compile schemas that came as text. Raises BadBody, or ConfigError if there is no compiler."""
    with tempfile.TemporaryDirectory(prefix="eruca-registry-") as home:
        for name, each in _walk(_MAIN, registered):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise BadBody(f"it imports {name}, which is not the name of a schema")
            file = Path(home) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(each.text, encoding="utf-8")
        try:
            return compile_file(Path(home) / _MAIN)
        except NoCompiler:
            raise
        except ConfigError as error:
            raise BadBody(str(error.args[0]).replace(f"{home}/", "")) from None


def _find_names(schema_id: int, registered: Registered) -> _Names:
    """Return the messages of a schema by their indexes. Raises BadBody."""
    try:
        main = parse_files(describe_files(registered), "it")[-1]
    except BadBody as error:
        raise BadBody(f"schema {schema_id} cannot be used: {error}") from None
    return dict(_number(main.message_type, main.package, ()))


def _number(messages: Iterable[Any], around: str, above: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    if len(above) >= MESSAGE_INDEXES_MAX:
        return
    for number, message in enumerate(messages):
        name = f"{around}.{message.name}".lstrip(".")
        yield (*above, number), name
        yield from _number(message.nested_type, name, (*above, number))
