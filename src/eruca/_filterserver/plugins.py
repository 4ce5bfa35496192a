"""Filter classes in Python, installed by the operator: loaded at the start, from the local disk only.

A file in the directory has classes derived from FilterClass. A consumer names the class and uploads nothing:

>>> class EuOnly(FilterClass):
...     def matches(self, message: FilterMessage) -> bool:
...         return message.properties.get("region") == "eu"

They run without a sandbox. So the directory and its files must not be writable by others.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from eruca._filterserver.sandbox import Verdict, read_body
from eruca._wire.record import Record
from eruca.errors import ConfigError, FilterFailed

log = logging.getLogger(__name__)

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class FilterMessage:
    """A message as a filter class sees it."""

    topic: str
    properties: Mapping[str, str]
    body: bytes


class FilterClass(ABC):
    """Base of filter classes; one instance of each serves all groups, from several threads at the same time."""

    @abstractmethod
    def matches(self, message: FilterMessage) -> bool:
        """Whether the message matches."""


def load_plugins(directory: Path) -> dict[str, FilterClass]:
    """Import every Python file in a directory and instantiate its filter classes, by name. Raises ConfigError."""
    if not directory.is_dir():
        raise ConfigError(f"filterPluginPath={directory}: there is no such directory")
    _check_owned(directory)
    found: dict[str, FilterClass] = {}
    for path in sorted(directory.glob("*.py")):
        _check_owned(path)
        module = _load(path)
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if not issubclass(kind, FilterClass) or inspect.isabstract(kind) or kind.__module__ != module.__name__:
                continue
            if name in found:
                raise ConfigError(f"{path}: two filter classes are named {name}")
            found[name] = kind()
            log.info("installed filter class %s (%s)", name, path)
    return found


def _check_owned(path: Path) -> None:
    if path.stat().st_mode & _OTHERS_WRITE:
        raise ConfigError(f"{path} is writable by others, but would be executed", hint=f"chmod go-w {path}")


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"eruca_filter_plugin_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path} cannot be loaded: {error.__class__.__name__}: {error}") from error
    return module


def run_plugin(name: str, plugin: FilterClass, messages: Sequence[Record]) -> Verdict:
    """Ask an installed class about messages. Raises FilterFailed if it raises."""
    wanted = []
    for number, message in enumerate(messages):
        shown = FilterMessage(message.topic, message.read_properties(), read_body(message))
        try:
            if plugin.matches(shown):
                wanted.append(number)
        except Exception as error:
            log.exception("the installed filter class %s failed", name)
            raise FilterFailed(f"the installed filter class {name} failed: {error.__class__.__name__}") from error
    return Verdict(wanted, len(messages))
