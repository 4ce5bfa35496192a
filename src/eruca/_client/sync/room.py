"""Limits messages being sent in the background, so that a thread cannot pile up messages without bound."""

from __future__ import annotations

import threading
from collections import deque


class Room:
    """Admits threads until it is full, then again when a quarter is free: waking them one by one is slow."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._wake_below = count_max - count_max // 4
        self._guard = threading.Lock()
        self._count = 0
        self._waiting: deque[threading.Lock] = deque()

    def enter(self, timeout_s: float) -> bool:
        """Enter, waiting if it is full; returns False on timeout."""
        with self._guard:
            if self._count < self._count_max:
                self._count += 1
                return True
            bell = threading.Lock()
            bell.acquire()
            self._waiting.append(bell)
        try:
            if bell.acquire(timeout=timeout_s):
                return True
        except BaseException:
            if not self._forget(bell):
                self.leave()
            raise
        return not self._forget(bell)

    def _forget(self, bell: threading.Lock) -> bool:
        """Stop waiting; returns False if the thread was admitted at that moment."""
        with self._guard:
            if bell not in self._waiting:
                return False
            self._waiting.remove(bell)
            return True

    def leave(self) -> None:
        """Make room."""
        with self._guard:
            self._count -= 1
            if self._waiting and self._count <= self._wake_below:
                while self._waiting and self._count < self._count_max:
                    self._count += 1
                    self._waiting.popleft().release()
