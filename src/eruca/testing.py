"""Tools for your tests: a broker inside the test process, a clock that tests move, and fixtures for pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eruca._testing.clock import VirtualClock

if TYPE_CHECKING:
    from eruca._testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "VirtualClock"]


def __getattr__(name: str) -> Any:
    # A broker is imported when it is first used: most tests only want the clock.
    if name != "EmbeddedBroker":
        raise AttributeError(f"module 'eruca.testing' has no attribute {name!r}")
    from eruca._testing.embedded import EmbeddedBroker

    return EmbeddedBroker
