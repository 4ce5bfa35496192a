"""Does an answer have the shape of Java's? The same code, the same header keys, and a body built the same way.

Values differ from run to run, so they are not compared: a number is a number. Objects have the same keys, unless the
keys are data themselves (topics, broker ids, queues); then every entry has the shape of Java's entries. An empty list
or map fits every other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eruca._wire import fastjson
from eruca._wire.frame import Command

# Fields that hold a map from data to values of one kind.
MAPS = frozenset(
    {
        "brokerAddrTable",
        "brokerAddrs",
        "clusterAddrTable",
        "consumerTable",
        "correctionOffsets",
        "data",
        "filterServerTable",
        "messageQueueTable",
        "mqTable",
        "offsetTable",
        "properties",
        "statusTable",
        "subscriptionGroupTable",
        "subscriptionTable",
        "table",
        "topicConfigTable",
    }
)


@dataclass(frozen=True)
class Body:
    """A body with what kind it is: empty, json, options or bytes."""

    kind: str
    value: Any = None


def read_body(data: bytes) -> Body:
    """Find out what a body is and read it."""
    if not data:
        return Body("empty")
    if data[:1] in b"{[":
        try:
            return Body("json", fastjson.parse(data))
        except fastjson.FastjsonError:
            return Body("bytes")
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        return Body("bytes")
    if all("=" in line for line in lines if line):
        return Body("options", {line.partition("=")[0] for line in lines if line})
    return Body("bytes")


def compare_answers(java: Command, ours: Command) -> list[str]:
    """Everything that is different between the shapes of two answers; empty when nothing is."""
    differences = []
    if java.code != ours.code:
        differences.append(f"code: Java {java.code}, ours {ours.code} ({ours.remark})")
    if java.serialization is not ours.serialization:
        differences.append(f"header type: Java {java.serialization}, ours {ours.serialization}")
    if java.has_ext != ours.has_ext:
        differences.append(f"extFields: Java {'has' if java.has_ext else 'has no'} map")
    java_keys, our_keys = java.ext_dict().keys(), ours.ext_dict().keys()
    if java_keys != our_keys:
        differences.append(f"extFields: Java {sorted(java_keys)}, ours {sorted(our_keys)}")
    return differences + list(compare_bodies(java.body, ours.body))


def compare_bodies(java: bytes, ours: bytes) -> Iterator[str]:
    """What is different between the shapes of two bodies."""
    expected, actual = read_body(java), read_body(ours)
    if expected.kind != actual.kind:
        yield f"body: Java {expected.kind}, ours {actual.kind}"
    elif expected.kind == "options":
        # Options of our own are welcome, those of Java must be there.
        if missing := expected.value - actual.value:
            yield f"body: options missing: {sorted(missing)}"
    elif expected.kind == "json":
        yield from compare_values(expected.value, actual.value, "body")


def compare_values(java: Any, ours: Any, path: str) -> Iterator[str]:
    """What is different between the shapes of two JSON values."""
    if name_type(java) != name_type(ours):
        yield f"{path}: Java {name_type(java)}, ours {name_type(ours)}"
    elif isinstance(java, dict):
        if is_map(path, java) or is_map(path, ours):
            yield from compare_entries(list(java.values()), list(ours.values()), f"{path}{{}}")
            return
        if java.keys() != ours.keys():
            yield f"{path}: Java has keys {sorted(java.keys())}, ours {sorted(ours.keys())}"
        for key in java.keys() & ours.keys():
            yield from compare_values(java[key], ours[key], f"{path}.{key}")
    elif isinstance(java, list):
        yield from compare_entries(java, ours, f"{path}[]")


def compare_entries(java: list[Any], ours: list[Any], path: str) -> Iterator[str]:
    """Each of our entries must have the shape of one of Java's; the first difference of each is reported."""
    if not java:
        return
    for entry in ours:
        differences = [list(compare_values(example, entry, path)) for example in java]
        if all(differences):
            yield min(differences, key=len)[0]


def is_map(path: str, value: dict[str, Any]) -> bool:
    """Are the keys data? By the field's name, or because the keys are numbers or objects."""
    if path.rpartition(".")[2] in MAPS:
        return True
    return bool(value) and all(key.lstrip("-").isdigit() or key.startswith("{") for key in value)


def name_type(value: Any) -> str:
    """The JSON type, with whole numbers and others apart."""
    return "null" if value is None else type(value).__name__
