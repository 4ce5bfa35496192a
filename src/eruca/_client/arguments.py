"""Checks of arguments that users pass to clients; an error names the argument and is raised at the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TypeVar

from eruca._wire.names import check_topic
from eruca.errors import ConfigError, InvalidName, WrongType

_Hook = TypeVar("_Hook")


def check_type(name: str, value: object, *kinds: type) -> None:
    """Raise WrongType unless a value is of one of these types."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise WrongType(f"{name}={value!r:.80}: expected {wanted}, not {type(value).__name__}")


def check_secret(name: str, value: object) -> None:
    """Raise WrongType unless a secret is a str; the error does not show it."""
    if not isinstance(value, str):
        raise WrongType(f"{name}: expected str, not {type(value).__name__}")


def check_hooks(hooks: Iterable[_Hook], *methods: str) -> tuple[_Hook, ...]:
    """Return the hooks. Raises ConfigError unless each has these methods."""
    check_type("hooks", hooks, Iterable)
    found = tuple(hooks)
    for hook in found:
        for method in methods:
            if not callable(getattr(hook, method, None)):
                raise ConfigError(f"hooks: {hook!r:.80} has no method {method}")
    return found


def check_count(name: str, value: int, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return a whole number. Raises ConfigError if it is something else or out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{name}={value!r:.80}: expected an int, not {type(value).__name__}")
    if value < at_least or (at_most is not None and value > at_most):
        bounds = f"at least {at_least}" if at_most is None else f"between {at_least} and {at_most}"
        raise ConfigError(f"{name}={value}: must be {bounds}")
    return value


def check_callable(name: str, value: Callable[..., object], *arguments: str) -> None:
    """Raise WrongType unless a value can be called, ConfigError unless it can be called with these arguments."""
    if not callable(value):
        raise WrongType(f"{name}={value!r:.80}: expected a function, not {type(value).__name__}")
    check_arguments(f"{name}={_describe(value)}", value, *arguments)


def check_arguments(who: str, function: Callable[..., object], *arguments: str) -> None:
    """Raise ConfigError unless a function can be called with as many arguments; `arguments` says what they are."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # it is written in C, or hides its signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ConfigError(
            f"{who} cannot be called with ({', '.join(arguments)}): {error}", hint="change its parameters"
        ) from None


def check_trace(trace: object) -> None:
    """Raise an error unless this is True, False or the name of a topic for traces."""
    check_type("trace", trace, bool, str)
    if isinstance(trace, str):
        try:
            check_topic(trace)
        except InvalidName as error:
            raise ConfigError(f"trace={trace!r:.80}: {error}", hint="True uses the usual topic") from None


def _describe(function: Callable[..., object]) -> str:
    """Return the name of a function, as a traceback shows it."""
    name = getattr(function, "__qualname__", None)
    return f"{name}" if isinstance(name, str) else f"{function!r:.80}"
