"""The schemas of topics, as the operator of the console names them in a file; users cannot name any.

    orders:
      format: avro
      schema: schemas/order.avsc
    payments-:
      format: protobuf
      schema: schemas/payment.desc
      message: shop.Payment
    events-:
      format: avro
      registry: https://registry:8081

Each key is the beginning of the names of topics; the longest that fits counts. Paths are relative to the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from eruca._console.messages.decoding import Decoder, Schema
from eruca._ground.yamlfiles import read_yaml
from eruca._schemas import avro, framedprotobuf, protobuf
from eruca._schemas.bodies import Decode, require
from eruca._schemas.registry import SchemaRegistry, open_source
from eruca.errors import ConfigError

_KEYS: Final = frozenset({"format", "schema", "message", "registry"})
_EXAMPLE: Final = "for example  orders: {format: avro, schema: order.avsc}"
# A page waits for the registry; a body that it does not know is shown as bytes.
_REGISTRY_S: Final = 3.0


def load_decoder(path: Path | None) -> Decoder:
    """Return the decoder for a file of schemas. Raises ConfigError; without a file it knows JSON and text only."""
    if path is None:
        return Decoder()
    return Decoder({prefix: _load(path, prefix, facts) for prefix, facts in read_yaml(path).items()})


def _load(path: Path, prefix: str, facts: Any) -> Schema:
    where = f"{path}: {prefix}"
    if not isinstance(facts, dict) or not facts.keys() <= _KEYS or not all(isinstance(x, str) for x in facts.values()):
        raise ConfigError(f"{where}: expected {', '.join(sorted(_KEYS))}", hint=_EXAMPLE)
    kind, file, place = facts.get("format"), facts.get("schema"), facts.get("registry")
    if kind not in ("avro", "protobuf"):
        raise ConfigError(f"{where}: format is avro or protobuf", hint=_EXAMPLE)
    if (file is None) == (place is None):
        raise ConfigError(f"{where}: a schema or a registry is needed", hint=_EXAMPLE)
    if kind == "avro":
        require("fastavro", where, "decoding")
    else:
        require("protobuf", where, "decoding", module="google.protobuf")
    if place is not None:
        return Schema(kind, _open_registry(kind, path, place), is_slow=True)
    found = path.parent / str(file)
    if kind == "avro":
        return Schema(kind, avro.make_decoder(avro.load_file(found)))
    content = protobuf.load_descriptors(found)
    name = protobuf.find_name(content, facts.get("message", ""), str(found))
    return Schema(kind, _to_value(protobuf.make_parser(content, name)))


def _open_registry(kind: str, path: Path, place: str) -> Decode:
    local = place if "://" in place else path.parent / place
    source = open_source(SchemaRegistry(local, timeout=_REGISTRY_S, retries=0))
    if kind == "avro":
        return avro.make_framed_decoder(source)
    return _to_value(framedprotobuf.make_framed_parser(source))


def _to_value(parse: Decode) -> Decode:
    from google.protobuf.json_format import MessageToDict

    return lambda body: MessageToDict(parse(body), preserving_proto_field_name=True)
