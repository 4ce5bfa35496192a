"""Checks of arguments that users pass to clients; an error names the argument and is raised at the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from eruca.errors import ConfigError

_Hook = TypeVar("_Hook")


def check_type(name: str, value: object, *kinds: type) -> None:
    """Raise ConfigError unless a value is of one of these types."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigError(f"{name}={value!r:.80}: expected {wanted}, not {type(value).__name__}")


def check_secret(name: str, value: object) -> None:
    """Raise ConfigError unless a secret is a str; the error does not show it."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected str, not {type(value).__name__}")


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
        raise ConfigError(f"{name}={value!r:.80}: expected an int, not {type(value).__name__}")
    if value < at_least or (at_most is not None and value > at_most):
        bounds = f"at least {at_least}" if at_most is None else f"between {at_least} and {at_most}"
        raise ConfigError(f"{name}={value}: must be {bounds}")
    return value


def check_callable(name: str, value: Callable[..., object]) -> None:
    """Raise ConfigError unless a value can be called."""
    if not callable(value):
        raise ConfigError(f"{name}={value!r:.80}: expected a function, not {type(value).__name__}")
