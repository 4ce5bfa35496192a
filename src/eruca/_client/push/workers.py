"""Threads for plain handlers: started and woken only when they are needed."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

# How long a thread that was woken checks whether the others finish jobs.
_LOOK_S = 0.0001

Job = tuple[Callable[[Any], object], Any]


class Workers:
    """At most `count` threads that run jobs in the order in which they were added.

    A thread that takes a job while more are waiting wakes one other thread, which checks for a moment whether the
    others finish jobs. If they do not, they are blocked, and it takes a job too. So functions that block soon keep all
    threads busy, and functions that do not block run one after another in a single thread: several threads would only
    compete for the interpreter lock.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._jobs: deque[Job] = deque()
        # Protects the fields below; the jobs need no lock.
        self._guard = threading.Lock()
        # One bell for each resting thread; the thread that went to rest last is woken first.
        self._resting: list[threading.Lock] = []
        self._threads = 0
        # A thread was woken and is not resting or working yet.
        self._is_waking = False
        self._is_closed = False
        # Grows while jobs are finished. Threads that count at the same moment may count as one.
        self._finished = 0

    def put(self, jobs: list[Job]) -> None:
        """Queue jobs: functions with their argument. They must not raise."""
        self._jobs.extend(jobs)
        self._wake_one()

    def resize(self, count: int) -> None:
        """Set how many threads work from now on; surplus threads rest when their current job is done."""
        with self._guard:
            self._count = count
        if self._jobs:
            self._wake_one()

    def close(self) -> None:
        """Let every thread end after its current job, without waiting for them."""
        with self._guard:
            self._is_closed = True
            resting, self._resting = self._resting, []
        for bell in resting:
            bell.release()

    def _wake_one(self) -> None:
        with self._guard:
            if self._is_waking or self._is_closed or self._threads - len(self._resting) >= self._count:
                return
            if self._resting:
                self._is_waking = True
                self._resting.pop().release()
            else:
                self._start_thread()

    def _start_thread(self) -> None:
        self._is_waking = True
        try:
            threading.Thread(target=self._work, name=f"eruca-{self._name}-{self._threads}", daemon=True).start()
        except RuntimeError:
            self._is_waking = False
            if not self._threads:
                raise
            log.warning("no more than %d threads can be started for %s", self._threads, self._name)
            return
        self._threads += 1

    def _work(self) -> None:
        bell = threading.Lock()
        bell.acquire()
        self._wait_until_needed(bell)
        jobs = self._jobs
        while not self._is_closed:
            try:
                function, argument = jobs.popleft()
            except IndexError:
                if self._go_to_rest(bell):
                    bell.acquire()
                    self._wait_until_needed(bell)
                continue
            # Looked at without the lock: nearly always nobody is to be woken.
            if jobs and not self._is_waking and (self._resting or self._threads < self._count):
                self._wake_one()
            function(argument)
            self._finished += 1
            if self._threads - len(self._resting) > self._count and self._give_way(bell):
                bell.acquire()
                self._wait_until_needed(bell)

    def _wait_until_needed(self, bell: threading.Lock) -> None:
        """In a thread that was woken: rest while the others finish jobs.

        It counts as resting before it checks, so a thread that finishes a job meanwhile wakes it before its next one.
        """
        while True:
            with self._guard:
                self._is_waking = False
                if self._is_closed or self._threads - len(self._resting) <= 1:
                    return  # nobody else works
                self._resting.append(bell)
                finished = self._finished
            time.sleep(_LOOK_S)
            if self._finished == finished:
                with self._guard:
                    if bell in self._resting:
                        self._resting.remove(bell)
                        return
            bell.acquire()

    def _give_way(self, bell: threading.Lock) -> bool:
        """Register this thread as resting, even if there are jobs, when more threads work than should."""
        with self._guard:
            if self._is_closed or self._threads - len(self._resting) <= self._count:
                return False
            self._resting.append(bell)
            return True

    def _go_to_rest(self, bell: threading.Lock) -> bool:
        """Register this thread as resting, unless there is a job now or the workers are closed."""
        with self._guard:
            if self._jobs or self._is_closed:
                return False
            self._resting.append(bell)
            return True
