"""Tools for tests: embedded broker, pytest plugin, virtual clock, fault disk. It may import everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eruca.testing.clock import VirtualClock

if TYPE_CHECKING:
    from eruca.testing.embedded import EmbeddedBroker as EmbeddedBroker

__all__ = ["EmbeddedBroker", "VirtualClock"]


def __getattr__(name: str) -> Any:
    # The plugin is imported by every run of pytest, and this package with it.
    if name != "EmbeddedBroker":
        raise AttributeError(f"module 'eruca.testing' has no attribute {name!r}")
    from eruca.testing.embedded import EmbeddedBroker

    return EmbeddedBroker
