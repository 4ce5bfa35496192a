"""Which account uses which client id. Replies to requests go to a client id, and a client chooses its own."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground.clock import Clock
from eruca._wire.codes import ResponseCode
from eruca.errors import RequestRefused

# An id stays with its account for this long after its last connection has closed: a client that reconnects finds it as
# it was. Beyond this many such ids, others are free at once.
_KEPT_SECONDS = 120.0
_KEPT_MAX = 20_000


@dataclass(slots=True)
class _Use:
    """An id in use, or one that was."""

    account: str
    # How many memberships of producers have it.
    count: int = 0
    left_at: float = 0.0


class ClientIds:
    """The accounts of client ids; empty where there are no accounts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: dict[str, _Use] = {}
        # Those that nobody has now, in the order in which they were left.
        self._left: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def claim(self, client_id: str, account: str | None) -> None:
        """Record that a client of an account has an id. Raises RequestRefused if it is that of another account."""
        if account is None:
            return
        self._forget()
        use = self._uses.get(client_id)
        if use is None:
            use = self._uses[client_id] = _Use(account)
        elif use.account != account:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the client id {client_id} is that of another account: use another instance name",
            )
        use.count += 1
        self._left.pop(client_id, None)

    def release(self, client_id: str, account: str | None) -> None:
        """Record that it has it no more."""
        if account is None:
            return
        use = self._uses[client_id]
        use.count -= 1
        if use.count:
            return
        if len(self._left) < _KEPT_MAX:
            use.left_at = self._clock.monotonic()
            self._left[client_id] = None
        else:
            del self._uses[client_id]

    def _forget(self) -> None:
        before = self._clock.monotonic() - _KEPT_SECONDS
        while self._left and self._uses[oldest := next(iter(self._left))].left_at < before:
            del self._uses[oldest], self._left[oldest]
