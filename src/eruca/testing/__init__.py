"""Tools for tests: virtual clock, fault disk, store fixtures. May import everything; nothing imports it."""

from eruca.testing.clock import VirtualClock

__all__ = ["VirtualClock"]
