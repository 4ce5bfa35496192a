"""The parts of the `cython` module that kernels need when they run as plain Python, with or without Cython."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

compiled = False
Function = TypeVar("Function", bound=Callable[..., Any])


def cfunc(function: Function) -> Function:
    """Return the function unchanged."""
    return function


inline = cfunc


def cclass(kind: type[Any]) -> type[Any]:
    """Return the class unchanged."""
    return kind


def exceptval(*_: Any, **__: Any) -> Callable[[Function], Function]:
    """Return the function unchanged."""
    return cfunc


def cast(_: Any, value: Any) -> Any:
    """Return the value unchanged."""
    return value


def declare(_: Any, value: Any) -> Any:
    """Return the value unchanged."""
    return value


# Types are only names here.
bint = char = int = longlong = uchar = uint = ulonglong = void = Py_ssize_t = None
p_const_uchar = p_const_uint = p_longlong = p_uchar = const = None
