"""Protobuf bodies: converts a message of a schema file to a Spark type, and decodes bodies with it."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eruca._spark.decoding.bodies import BadBody, Decode
from eruca._spark.requirements import require
from eruca._spark.suggestions import suggest_name
from eruca.errors import ConfigError

_COMPILE_SECONDS_MAX: Final = 60

Read = Callable[[Any], Any]

# By the number of the type in a descriptor.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_SCALARS: Final[dict[int, DataType]] = {
    _DOUBLE: DoubleType(),
    _FLOAT: FloatType(),
    _BOOL: BooleanType(),
    _STRING: StringType(),
    _BYTES: BinaryType(),
    **dict.fromkeys((_INT32, _SINT32, _SFIXED32), IntegerType()),
    **dict.fromkeys((_INT64, _SINT64, _SFIXED64, _UINT32, _FIXED32), LongType()),
    # Spark has no unsigned 64-bit integer.
    **dict.fromkeys((_UINT64, _FIXED64), DecimalType(20, 0)),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
# These types contain themselves; they become JSON.
_FREE: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})


class NoCompiler(ConfigError):
    """No program is installed that reads `.proto` files."""


@dataclass(frozen=True)
class ProtobufSchema:
    """A message type: descriptor files, and the name of the message in them."""

    descriptors: bytes
    message: str
    refuse_unknown: bool

    @property
    def spark(self) -> DataType:
        """The type of the decoded column."""
        return _read_message(_build_pool(self.descriptors).FindMessageTypeByName(self.message), ())[0]

    def make_decoder(self) -> Decode:
        """Return a function that decodes one body."""
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass
        from google.protobuf.unknown_fields import UnknownFieldSet

        descriptor = _build_pool(self.descriptors).FindMessageTypeByName(self.message)
        parse = GetMessageClass(descriptor).FromString
        _, read = _read_message(descriptor, ())
        refuse_unknown = self.refuse_unknown

        def decode(body: bytes) -> Any:
            try:
                message = parse(body)
            except DecodeError as problem:
                raise BadBody(f"it is not Protobuf: {problem}") from None
            if not message.IsInitialized():
                raise BadBody(f"it is not a {self.message}: {', '.join(message.FindInitializationErrors())} missing")
            if refuse_unknown:
                unknown = sorted({field.field_number for field in UnknownFieldSet(message)})
                if unknown:
                    raise BadBody(f"it is not a {self.message}: there is no field {unknown[0]}")
            return read(message)

        return decode


# -- schema files ------------------------------------------------------------------------------------------------------


def load_protobuf(schema_file: str | Path, message: str, refuse_unknown: bool) -> ProtobufSchema:
    """Read a schema file and find a message in it. Raises ConfigError."""
    require("protobuf", "decode_protobuf", "decoding", module="google.protobuf")
    return choose_message(load_descriptors(Path(schema_file)), message, refuse_unknown, str(schema_file))


def load_descriptors(path: Path) -> bytes:
    """Return the descriptors of a schema file and of the files it imports. Raises ConfigError."""
    try:
        content = compile_file(path) if path.suffix == ".proto" else path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Protobuf schema {path}: {error.strerror}") from None
    parse_files(content, str(path))
    return content


def choose_message(content: bytes, message: str, refuse_unknown: bool, where: str) -> ProtobufSchema:
    """Find a message in descriptors; without a name, the only one of the last file. Raises ConfigError."""
    files = parse_files(content, where)
    names = [name for file in files for name in _list_messages(file.message_type, file.package)]
    own = _list_messages(files[-1].message_type, files[-1].package)
    if not message and len(own) == 1:
        message = own[0]
    if message not in names:
        guess = suggest_name(message, names, f"there are {', '.join(own)}")
        raise ConfigError(f"{where} has no message {message}" if message else f"which message of {where}?", hint=guess)
    schema = ProtobufSchema(content, message, refuse_unknown)
    _ = schema.spark  # fails here rather than in a task
    return schema


def compile_file(path: Path) -> bytes:
    """Return the descriptors of a `.proto` file and of everything it imports."""
    if importlib.util.find_spec("grpc_tools") is not None:
        command = [sys.executable, "-m", "grpc_tools.protoc"]
    elif (protoc := shutil.which("protoc")) is not None:
        command = [protoc]
    else:
        raise NoCompiler(
            f"no compiler is installed that can read {path}",
            hint="pip install grpcio-tools, or give a descriptor set (protoc --include_imports --descriptor_set_out)",
        )
    path.stat()  # a missing file raises a clearer error than the compiler's
    with tempfile.TemporaryDirectory(prefix="eruca-proto-") as directory:
        out = Path(directory) / "set.desc"
        arguments = [f"--proto_path={path.parent}", "--include_imports", f"--descriptor_set_out={out}", str(path)]
        run = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=_COMPILE_SECONDS_MAX, check=False
        )
        if run.returncode:
            raise ConfigError(f"{path} is not Protobuf: {' '.join(run.stderr.split())}")
        return out.read_bytes()


def parse_files(content: bytes, where: str) -> list[Any]:
    """Return the files of a descriptor set, each after those it imports. Raises ConfigError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError:
        files = []
    if not files:
        raise ConfigError(
            f"{where} is not a descriptor set", hint="made by protoc --include_imports --descriptor_set_out=FILE"
        )
    try:
        _build_pool(content)
    except (TypeError, KeyError) as error:
        raise ConfigError(f"{where}: {error}", hint="made with --include_imports?") from None
    return files


def _list_messages(messages: Iterable[Any], around: str) -> list[str]:
    found = []
    for message in messages:
        name = f"{around}.{message.name}".lstrip(".")
        if not message.options.map_entry:
            found += [name, *_list_messages(message.nested_type, name)]
    return found


def _build_pool(content: bytes) -> Any:
    """Return a pool with these files, and with the standard Protobuf files that they import but do not include."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    files = FileDescriptorSet.FromString(content).file
    there = {file.name for file in files}
    for file in files:
        for needed in file.dependency:
            if needed not in there and needed.startswith("google/protobuf/"):
                module = importlib.import_module(needed.removesuffix(".proto").replace("/", ".") + "_pb2")
                pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
                there.add(needed)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


# -- types and their readers -------------------------------------------------------------------------------------------


def _read_message(descriptor: Any, around: tuple[str, ...]) -> tuple[DataType, Read]:
    """Return the Spark type of a message, and a function that reads its value; `around` are the enclosing messages."""
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return TimestampType(), lambda it: it.seconds * 1_000_000 + it.nanos // 1000
    if name == "google.protobuf.Duration":
        return DayTimeIntervalType(), lambda it: it.seconds * 1_000_000 + int(it.nanos / 1000)
    if name in _WRAPPERS:
        return _SCALARS[descriptor.fields_by_name["value"].type], lambda it: it.value
    if name in _FREE:
        from google.protobuf.json_format import MessageToJson

        return StringType(), lambda it: MessageToJson(it, indent=None, ensure_ascii=False)
    if name in around:
        raise ConfigError(f"Protobuf message {name} contains itself", hint="Spark has no type for it")
    if not descriptor.fields:
        raise ConfigError(f"Protobuf message {name} has no fields", hint="Spark has no type for it")
    fields = [(field.name, *_read_field(field, (*around, name))) for field in descriptor.fields]
    kind = StructType([StructField(field, spark) for field, spark, _ in fields])
    readers = [(field, read) for field, _, read in fields]
    return kind, lambda it: {field: read(it) for field, read in readers}


def _read_field(field: Any, around: tuple[str, ...]) -> tuple[DataType, Read]:
    """Return the Spark type of a field, and a function that reads it from its message."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, _ = _read_value(field.message_type.fields_by_name["key"], around)
        kind, read = _read_value(field.message_type.fields_by_name["value"], around)
        return MapType(key, kind), lambda it: [(key, read(value)) for key, value in getattr(it, name).items()]
    kind, read = _read_value(field, around)
    if _is_repeated(field):
        return ArrayType(kind), lambda it: [read(value) for value in getattr(it, name)]
    if field.has_presence:
        return kind, lambda it: read(getattr(it, name)) if it.HasField(name) else None
    return kind, lambda it: read(getattr(it, name))


def _read_value(field: Any, around: tuple[str, ...]) -> tuple[DataType, Read]:
    """Return the Spark type of one value of a field, and a function that reads it."""
    if field.type in (_MESSAGE, _GROUP):
        return _read_message(field.message_type, around)
    if field.type == _ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        # The number of an enum value from a newer schema is better than nothing.
        return StringType(), lambda number: names.get(number) or str(number)
    return _SCALARS[field.type], lambda value: value


def _is_repeated(field: Any) -> bool:
    # The newer name first: in newer versions the older one warns.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)
