"""Shared by all Python load programs: arguments, clocks, and ways to keep messages in flight.

The programs run in the environments of clients we do not own, so this needs nothing but Python itself. Each prints one
JSON object: messages, failures, and the wall and CPU seconds of the measured part, which a warm-up precedes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SCENARIOS = ("single", "concurrent", "threads", "consume")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Load:
    """The arguments of a load program."""

    scenario: str
    name_server: str
    topic: str
    group: str
    count: int
    warmup: int
    seconds_max: float
    in_flight: int
    # Threads of a consumer; 0 for the client's default.
    threads: int
    size: int
    broker_pid: int
    jars: str
    plain: bool

    @property
    def body(self) -> bytes:
        """What every message carries."""
        return b"x" * self.size


def read_load() -> Load:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--seconds-max", type=float, default=60.0)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--broker-pid", type=int, default=0)
    parser.add_argument("--jars", default="")
    parser.add_argument("--plain", action="store_true")
    return Load(**vars(parser.parse_args()))


class Meter:
    """The clocks of the measured part: wall, CPU of this process with all its threads, and CPU of the broker."""

    def __init__(self, load: Load) -> None:
        self._broker = load.broker_pid
        self._begun = (0.0, 0.0, 0.0)
        self._ended = (0.0, 0.0, 0.0)
        self.deadline = 0.0

    def start(self, seconds_max: float) -> None:
        """Begin to measure; the part ends at the deadline even when work is left."""
        self._begun = self._look()
        self.deadline = self._begun[0] + seconds_max

    def stop(self) -> None:
        """The last message is done."""
        self._ended = self._look()

    def _look(self) -> tuple[float, float, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), used.ru_utime + used.ru_stime, read_cpu_seconds(self._broker)

    def print_result(self, messages: int, failed: int = 0) -> None:
        """Report what was measured."""
        wall, own, broker = (end - begin for begin, end in zip(self._begun, self._ended, strict=True))
        result = {
            "messages": messages,
            "failed": failed,
            "seconds": wall,
            "cpu_seconds": own,
            "broker_cpu_seconds": broker,
        }
        print(json.dumps(result), flush=True)


def read_cpu_seconds(pid: int) -> float:
    """CPU seconds another process has used; 0 for none."""
    if not pid:
        return 0.0
    # The name in parentheses may contain anything; user and system time are the 12th and 13th fields after it.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Turns:
    """Hands out the messages of a part to the next sender, until all are sent or time runs out."""

    def __init__(self, count: int, deadline: float) -> None:
        # `next` of an iterator written in C is atomic, so threads need no lock.
        self._numbers = iter(range(count))
        self._deadline = deadline

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if time.perf_counter() > self._deadline:
            raise StopIteration
        return next(self._numbers)


class Outcome:
    """Counts successes and failures of a part; threads may share it."""

    def __init__(self) -> None:
        self._sent = itertools.count()
        self._failed = itertools.count()
        self.first_failure = ""

    def add(self, error: BaseException | None) -> None:
        """One message is done."""
        if error is None:
            next(self._sent)
        else:
            next(self._failed)
            self.first_failure = self.first_failure or f"{type(error).__name__}: {error}"

    def read(self) -> tuple[int, int]:
        """How many were sent, and how many failed. To be called once, at the end."""
        if self.first_failure:
            print(self.first_failure, file=sys.stderr)
        return next(self._sent), next(self._failed)


Part = Callable[[Turns, Outcome], None]


def run_parts(load: Load, run_part: Part) -> None:
    """Warm up, then measure."""
    meter = Meter(load)
    run_part(Turns(load.warmup, time.perf_counter() + load.seconds_max), Outcome())
    outcome = Outcome()
    meter.start(load.seconds_max)
    run_part(Turns(load.count, meter.deadline), outcome)
    meter.stop()
    meter.print_result(*outcome.read())


def send_one_by_one(send: Callable[[], None]) -> Part:
    """Send each message when the one before is acknowledged."""

    def run_part(turns: Turns, outcome: Outcome) -> None:
        for _ in turns:
            try:
                send()
            except Exception as error:  # the other clients raise what they like
                outcome.add(error)
            else:
                outcome.add(None)

    return run_part


def send_from_threads(send: Callable[[], None], number: int) -> Part:
    """`number` threads, each of which sends one message after the other."""
    send_part = send_one_by_one(send)

    def run_part(turns: Turns, outcome: Outcome) -> None:
        threads = [threading.Thread(target=send_part, args=(turns, outcome)) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run_part


Done = Callable[[BaseException | None], None]


def send_with_callbacks(submit: Callable[[Done], None], in_flight: int) -> Part:
    """One thread hands messages over; a callback from any thread frees the place of one."""

    def run_part(turns: Turns, outcome: Outcome) -> None:
        places = threading.Semaphore(in_flight)

        def finish(error: BaseException | None) -> None:
            outcome.add(error)
            places.release()

        for _ in turns:
            places.acquire()
            try:
                submit(finish)
            except Exception as error:  # the other clients raise what they like
                finish(error)
        for _ in range(in_flight):
            places.acquire()

    return run_part


class Arrivals:
    """Counts the messages that reach a handler, from any thread, and measures from the warm-up to the last."""

    def __init__(self, load: Load, when_done: Callable[[], object]) -> None:
        self._load = load
        self._meter = Meter(load)
        self._numbers = itertools.count(1)
        self._when_done = when_done

    def note(self) -> None:
        """Count one message that arrived."""
        number = next(self._numbers)
        if number == self._load.warmup:
            self._meter.start(self._load.seconds_max)
        elif number == self._load.count:
            self._meter.stop()
            self._when_done()

    def print_result(self, *, complete: bool) -> None:
        """Report what was measured, up to now if time ran out before the last message."""
        number = self._load.count
        if not complete:
            number = min(next(self._numbers), self._load.count)
            self._meter.stop()
        self._meter.print_result(max(0, number - self._load.warmup))


def consume_until_done(load: Load, start: Callable[[Callable[[], None]], None]) -> None:
    """Start a consumer whose handler calls the given function, and wait until all messages have arrived."""
    done = threading.Event()
    arrivals = Arrivals(load, done.set)
    start(arrivals.note)
    arrivals.print_result(complete=done.wait(load.seconds_max))
