"""Events of an object that others can listen to, without the object knowing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

Args = TypeVarTuple("Args")


class Signal(Generic[*Args]):
    """One event. Its owner creates it; listeners are built later and subscribe."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        #: In the order they subscribed. The hottest path calls them directly: `tell` is one more call.
        self.listeners: list[Callable[[*Args], object]] = []

    def listen(self, listener: Callable[[*Args], object]) -> None:
        """Call a function at every event, after the existing listeners."""
        self.listeners.append(listener)

    def ignore(self, listener: Callable[[*Args], object]) -> None:
        """Remove a listener."""
        self.listeners.remove(listener)

    def __contains__(self, listener: Callable[[*Args], object]) -> bool:
        return listener in self.listeners

    def tell(self, *args: *Args) -> None:
        """Call every listener."""
        for listener in self.listeners:
            listener(*args)
