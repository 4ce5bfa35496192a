"""Protobuf bodies as messages: schema files, compiled where that is needed, and reading one message."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from eruca._ground.suggestions import suggest_name
from eruca._schemas.bodies import BadBody, Decode
from eruca.errors import ConfigError

_COMPILE_SECONDS_MAX: Final = 60


class NoCompiler(ConfigError):
    """No program is installed that reads `.proto` files."""


def make_parser(descriptors: bytes, message: str, *, refuse_unknown: bool = False) -> Decode:
    """Return a function that parses one body as a message of descriptor files."""
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass
    from google.protobuf.unknown_fields import UnknownFieldSet

    parse = GetMessageClass(find_type(descriptors, message)).FromString

    def decode(body: bytes) -> Any:
        try:
            found = parse(body)
        except DecodeError as problem:
            raise BadBody(f"it is not Protobuf: {problem}") from None
        if not found.IsInitialized():
            raise BadBody(f"it is not a {message}: {', '.join(found.FindInitializationErrors())} missing")
        if refuse_unknown:
            unknown = sorted({field.field_number for field in UnknownFieldSet(found)})
            if unknown:
                raise BadBody(f"it is not a {message}: there is no field {unknown[0]}")
        return found

    return decode


def find_type(descriptors: bytes, message: str) -> Any:
    """Return the descriptor of a message."""
    return _build_pool(descriptors).FindMessageTypeByName(message)


# -- schema files ------------------------------------------------------------------------------------------------------


def load_descriptors(path: Path) -> bytes:
    """Return the descriptors of a schema file and of the files it imports. Raises ConfigError."""
    try:
        content = compile_file(path) if path.suffix == ".proto" else path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Protobuf schema {path}: {error.strerror}") from None
    parse_files(content, str(path))
    return content


def find_name(content: bytes, message: str, where: str) -> str:
    """Return the name of a message in descriptors; without a name, that of the only one of the last file.

    Raises ConfigError.
    """
    files = parse_files(content, where)
    names = [name for file in files for name in _list_messages(file.message_type, file.package)]
    own = _list_messages(files[-1].message_type, files[-1].package)
    if not message and len(own) == 1:
        message = own[0]
    if message not in names:
        guess = suggest_name(message, names, f"there are {', '.join(own)}")
        raise ConfigError(f"{where} has no message {message}" if message else f"which message of {where}?", hint=guess)
    return message


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
