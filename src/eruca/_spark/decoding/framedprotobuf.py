"""Protobuf bodies that name their schema by its id in a registry, and their message by its place in that schema."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pyspark.sql.types import DataType

from eruca._ground.limits import MESSAGE_INDEXES_MAX
from eruca._spark.decoding.bodies import BadBody, Decode
from eruca._spark.decoding.framing import read_indexes, split_frame
from eruca._spark.decoding.protobuf import (
    NoCompiler,
    ProtobufSchema,
    choose_message,
    compile_file,
    load_protobuf,
    parse_files,
)
from eruca._spark.decoding.registry import PROTOBUF, Registered, SchemaCache, SchemaRegistry, SchemaSource
from eruca._spark.requirements import require
from eruca.errors import ConfigError

# The name of the file that has no name of its own in a registry.
_MAIN: Final = "schema.proto"

# Full names of messages by their indexes.
_Names = dict[tuple[int, ...], str]


@dataclass(frozen=True)
class FramedProtobuf:
    """Bodies with the frame of a registry; all are read as one message."""

    source: SchemaSource
    schema: ProtobufSchema

    @property
    def spark(self) -> DataType:
        """The type of the decoded column."""
        return self.schema.spark

    def make_decoder(self) -> Decode:
        """Return a function that decodes one body."""
        schemas = self.source.open()
        written = SchemaCache(lambda schema_id: _find_names(schema_id, schemas.find(schema_id)))
        read = self.schema.make_decoder()
        wanted = self.schema.message

        def decode(body: bytes) -> Any:
            schema_id, at = split_frame(body)
            indexes, at = read_indexes(body, at)
            name = written.get(schema_id).get(indexes)
            if name is None:
                raise BadBody(f"schema {schema_id} has no message at {'/'.join(map(str, indexes))}")
            if name != wanted:
                raise BadBody(f"it is a {name}, not a {wanted}")
            return read(body[at:])

        return decode


def load_framed(
    registry: SchemaRegistry, schema_file: str | Path | None, message: str, subject: str, refuse_unknown: bool
) -> FramedProtobuf:
    """Return the schema of bodies with the frame of a registry. Raises ConfigError, or NetError without an answer."""
    require("protobuf", "decode_protobuf", "decoding", module="google.protobuf")
    if (schema_file is None) == (not subject):
        raise ConfigError(
            "with a registry, decode_protobuf needs one schema to read all bodies with",
            hint='schema_file="order.proto", or subject="orders-value" for its newest schema as it is now',
        )
    source = registry.open_source()
    if schema_file is not None:
        return FramedProtobuf(source, load_protobuf(schema_file, message, refuse_unknown))
    where = f"the newest schema of {subject}"
    try:
        content = describe_files(source.open().find_latest(subject))
    except BadBody as error:
        raise ConfigError(f"{where} cannot be used: {error}") from None
    return FramedProtobuf(source, choose_message(content, message, refuse_unknown, where))


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
