"""What decoders of bodies have in common."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from eruca.errors import ConfigError

#: Decodes one body. Raises BadBody, and what its library raises.
Decode: TypeAlias = Callable[[bytes], Any]

# A reason is for people; the body itself is still available.
_REASON_CHARS_MAX: Final = 300


class BadBody(ValueError):
    """A body that cannot be decoded; the text is the reason."""


def describe(problem: Exception) -> str:
    """Return a reason in one line of limited length."""
    text = " ".join(str(problem).split())
    if not isinstance(problem, BadBody):
        text = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    return text if len(text) <= _REASON_CHARS_MAX else text[: _REASON_CHARS_MAX - 3] + "..."


def require(package: str, who: str, extra: str, *, module: str = "") -> None:
    """Raise ConfigError, which names the extra to install, unless a package is installed."""
    try:
        is_installed = importlib.util.find_spec(module or package) is not None
    except (ModuleNotFoundError, ValueError):  # the package that contains it is missing, or it was blocked
        is_installed = False
    if not is_installed:
        raise ConfigError(f"{who} needs {package}", hint=f'pip install "eruca[{extra}]", on every node')
