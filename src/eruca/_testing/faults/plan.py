"""Which file-system call fails, and how."""

from __future__ import annotations

import errno
import random
from collections import deque
from enum import StrEnum

# Calls that can fail in reality. `populate`, `rewrite`, `next_data`, `exists`, `is_directory`, `used_ratio` and `close`
# are not counted: a test that adds one of them does not shift the numbers of the others.
COUNTED_OPERATIONS = frozenset(
    {
        "map", "create", "allocate", "write", "sync", "read_file", "write_file", "rename", "remove",
        "remove_directory", "make_directory", "sync_directory", "list", "size", "modified_ms", "lock",
    }
)  # fmt: skip


class Fault(StrEnum):
    """How a call fails."""

    EIO = "eio"
    ENOSPC = "enospc"
    SHORT = "short"  # only `write` and `write_file` can be short; other calls succeed

    @property
    def errno(self) -> int:
        """The system's error number that the caller sees."""
        return errno.EIO if self is Fault.EIO else errno.ENOSPC


class FaultPlan:
    """Planned faults; each occurs once."""

    def __init__(self, by_call: dict[int, Fault] | None = None) -> None:
        self._by_call: dict[int, Fault] = dict(by_call or {})
        self._by_operation: dict[str, deque[Fault]] = {}

    @classmethod
    def scatter(cls, seed: int, calls: int, rate: float) -> FaultPlan:
        """Return a random plan: each of the first `calls` calls fails with probability `rate`."""
        rng = random.Random(f"{seed}:plan")
        kinds = list(Fault)
        return cls({number: rng.choice(kinds) for number in range(1, calls + 1) if rng.random() < rate})

    def fail(self, call_number: int, kind: Fault | str) -> None:
        """Make the call with this number fail; the first call of a disk is number 1."""
        self._by_call[call_number] = Fault(kind)

    def fail_next(self, operation: str, kind: Fault | str, *, times: int = 1) -> None:
        """Make the next `times` calls of one operation fail."""
        if operation not in COUNTED_OPERATIONS:
            raise ValueError(f"{operation!r} cannot fail; one of {sorted(COUNTED_OPERATIONS)} can")
        self._by_operation.setdefault(operation, deque()).extend([Fault(kind)] * times)

    def clear(self) -> None:
        """Remove all faults that have not occurred."""
        self._by_call.clear()
        self._by_operation.clear()

    def take(self, call_number: int, operation: str) -> Fault | None:
        """Return and remove the fault planned for this call, if there is one."""
        fault = self._by_call.pop(call_number, None)
        waiting = self._by_operation.get(operation)
        if fault is None and waiting:
            fault = waiting.popleft()
        return fault
