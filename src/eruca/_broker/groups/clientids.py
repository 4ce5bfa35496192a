"""Which account uses which client id. Replies to requests go to a client id, and a client chooses its own."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground.clock import Clock
from eruca._wire.codes import ResponseCode
from eruca.errors import RequestRefused

# An id stays with its account for this long after its last connection has closed: a client that reconnects finds it as
# it was. Beyond this many, the account with most of them loses its newest, so nobody pushes out ids of others.
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
        # Those that nobody has now by account, in the order in which they were left, and how many there are.
        self._left: dict[str, dict[str, None]] = {}
        self._left_count = 0

    def __len__(self) -> int:
        return len(self._uses)

    def claim(self, client_id: str, account: str | None) -> None:
        """Record that a client of an account has an id. Raises RequestRefused if it is that of another account."""
        if account is None:
            return
        use = self._uses.get(client_id)
        if use is not None and use.account != account:
            if use.count or not self._is_old(use):
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client id {client_id} is that of another account: use another instance name",
                )
            self._drop(client_id)
            use = None
        if use is None:
            use = self._uses[client_id] = _Use(account)
        elif not use.count:
            self._take_back(client_id, account)
        use.count += 1

    def release(self, client_id: str, account: str | None) -> None:
        """Record that it has it no more."""
        if account is None:
            return
        use = self._uses[client_id]
        use.count -= 1
        if use.count:
            return
        use.left_at = self._clock.monotonic()
        self._left.setdefault(account, {})[client_id] = None
        self._left_count += 1
        self._forget_old(account)
        if self._left_count > _KEPT_MAX:
            for other in list(self._left):
                self._forget_old(other)
        if self._left_count > _KEPT_MAX:
            self._drop(next(reversed(max(self._left.values(), key=len))))

    def _is_old(self, use: _Use) -> bool:
        return use.left_at < self._clock.monotonic() - _KEPT_SECONDS

    def _forget_old(self, account: str) -> None:
        while (left := self._left.get(account)) and self._is_old(self._uses[oldest := next(iter(left))]):
            self._drop(oldest)

    def _drop(self, client_id: str) -> None:
        """Forget an id that nobody has."""
        self._take_back(client_id, self._uses.pop(client_id).account)

    def _take_back(self, client_id: str, account: str) -> None:
        left = self._left[account]
        del left[client_id]
        if not left:
            del self._left[account]
        self._left_count -= 1
