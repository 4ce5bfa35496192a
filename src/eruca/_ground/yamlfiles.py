"""Small YAML files of operators: bounded, plain data only. Errors never quote a file, because it may have secrets."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from eruca._ground.config import shorten
from eruca._ground.limits import YAML_FILE_BYTES_MAX
from eruca.errors import ConfigError

Document: TypeAlias = dict[str, Any]
_QUOTED: Final = re.compile(r"'.*'", re.DOTALL)


class _Twice(yaml.constructor.ConstructorError):
    """A mapping has a key twice."""


class _Loader(yaml.SafeLoader):
    """Makes only plain data, and refuses a key that a mapping has twice.

    The loader in C is seven times faster, but deep nesting overflows its stack and ends the process.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Make a dict."""
        found: set[str] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in found:
                    problem = f"{shorten(key_node.value)!r} is there twice"
                    raise _Twice(None, None, problem, key_node.start_mark)
                found.add(key_node.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Document:
    """Read a file that is a mapping; an empty one is an empty mapping. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(YAML_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > YAML_FILE_BYTES_MAX:
        raise ConfigError(f"{path} is larger than {YAML_FILE_BYTES_MAX} bytes")
    try:
        # A subclass of the safe loader.
        document = yaml.load(data, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {_explain(error)}") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise ConfigError(f"{path} cannot be read: {error.__class__.__name__}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a mapping", hint="it has lines like `name: value`")
    return document


def write_yaml(document: Document) -> bytes:
    """Return the bytes of a file. Raises ConfigError if it is too large to be read again."""
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False)
    data = text.encode()
    if len(data) > YAML_FILE_BYTES_MAX:
        raise ConfigError(f"the file would have {len(data)} bytes, at most {YAML_FILE_BYTES_MAX} are allowed")
    return data


def _explain(error: yaml.YAMLError) -> str:
    """Say what is wrong and where."""
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" in line {mark.line + 1}"
    problem = getattr(error, "problem", None) or "it cannot be read"
    # A secret that begins with `*` or `!` is an alias or a tag to YAML, and the problem quotes its name.
    return f"{problem if isinstance(error, _Twice) else _QUOTED.sub('(...)', problem)}{where}"
