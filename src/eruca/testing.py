"""Tools for your tests: handlers called directly, a broker in the test process, pytest fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eruca._testing.delivering import Delivered, deliver, deliver_batch
    from eruca._testing.embedded import EmbeddedBroker

__all__ = ["Delivered", "EmbeddedBroker", "deliver", "deliver_batch"]

# Imported when they are first used: most tests need only one of clients and broker.
_LATER = {
    "Delivered": "eruca._testing.delivering",
    "EmbeddedBroker": "eruca._testing.embedded",
    "deliver": "eruca._testing.delivering",
    "deliver_batch": "eruca._testing.delivering",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'eruca.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
