"""Events of an object that others may hear of, without the object knowing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

Args = TypeVarTuple("Args")


class Signal(Generic[*Args]):
    """One event. Its owner makes it complete; who wants to hear of it is built later and listens."""

    __slots__ = ("listeners",)

    def __init__(self) -> None:
        #: In the order they came. The hottest path calls them itself: `tell` is one call more.
        self.listeners: list[Callable[[*Args], object]] = []

    def listen(self, listener: Callable[[*Args], object]) -> None:
        """Call a function at every event, after those that listen already."""
        self.listeners.append(listener)

    def ignore(self, listener: Callable[[*Args], object]) -> None:
        """Call a function no more that listens."""
        self.listeners.remove(listener)

    def __contains__(self, listener: Callable[[*Args], object]) -> bool:
        return listener in self.listeners

    def tell(self, *args: *Args) -> None:
        """The event has happened."""
        for listener in self.listeners:
            listener(*args)
