"""What `hot` needs of the `cython` module when it runs as plain Python and Cython is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

compiled = False
Function = TypeVar("Function", bound=Callable[..., Any])


def cfunc(function: Function) -> Function:
    """Leave the function as it is."""
    return function


inline = cfunc


def cclass(kind: type[Any]) -> type[Any]:
    """Leave the class as it is."""
    return kind


def exceptval(*_: Any, **__: Any) -> Callable[[Function], Function]:
    """Leave the function as it is."""
    return cfunc


def cast(_: Any, value: Any) -> Any:
    """Leave the value as it is."""
    return value


def declare(_: Any, value: Any) -> Any:
    """Leave the value as it is."""
    return value


def __getattr__(name: str) -> Any:
    """Any type is only a name here."""
    return name
