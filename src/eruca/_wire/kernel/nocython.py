"""What kernels need of the `cython` module when they run as plain Python, whether Cython is installed or not."""

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


# Types are only names here.
bint = char = int = longlong = uchar = uint = ulonglong = void = Py_ssize_t = None
p_const_uchar = p_const_uint = p_longlong = p_uchar = const = None
