"""Sequential registrations with one name server, and retries after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from eruca._ground.repeating import Repeating

# After a failure, the next change is sent after this pause; callers do not wait for it.
_FAILED_PAUSE_S: Final = 1.0
# After a registration comes a pause as long as the registration took, but at most this long: changes in the meantime
# are sent together.
_PAUSE_S_MAX: Final = 0.1
# The periodic task runs only when it is woken.
_NEVER_S: Final = 86_400.0


class Teller:
    """Registers with one name server, one registration at a time: changes in the meantime cause one more."""

    def __init__(self, what: str, register: Callable[[], Awaitable[bool]]) -> None:
        """`what` names the registration in logs; `register` returns whether the name server accepted it."""
        self._register = register
        self._loop = asyncio.get_running_loop()
        # Waits for the registration that has not started yet.
        self._next: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rest_until = 0.0
        self._is_busy = False
        self._failed = False
        self._hurries = False
        # Woken whenever there is something to register.
        self._telling = Repeating(what, self._tell, lambda: _NEVER_S, retry_s=_NEVER_S)
        self._telling.start()

    def ask(self, *, now: bool = False) -> asyncio.Future[None]:
        """Register soon, or now; the future completes when that has succeeded or failed."""
        if self._next is None:
            self._next = self._loop.create_future()
        asked = self._next
        if now:
            self._hurries = True
            self._telling.wake()
        elif not self._is_busy:
            self._schedule()
        return self._make_done() if self._failed and not now else asked

    def _make_done(self) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        done.set_result(None)
        return done

    def _schedule(self) -> None:
        if self._rest_until <= self._loop.time():
            self._telling.wake()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._rest_until, self._telling.wake)

    async def _tell(self) -> None:
        self._stop_timer()
        current, self._next, self._hurries = self._next, None, False
        if current is None:
            return
        started, self._is_busy, self._failed = self._loop.time(), True, True
        try:
            self._failed = not await self._register()
        finally:
            now = self._loop.time()
            self._rest_until = now + (_FAILED_PAUSE_S if self._failed else min(_PAUSE_S_MAX, now - started))
            self._is_busy = False
            _finish(current)
            self._go_on()

    def _go_on(self) -> None:
        """Start what was requested meanwhile, after the pause unless it was requested with `now`."""
        if self._next is None or self._hurries:
            return
        if self._failed:
            _finish(self._next)
            self._next = self._loop.create_future()
        self._schedule()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        """Stop; a registration under way is cancelled."""
        await self._telling.stop()
        self._stop_timer()
        _finish(self._next)
        self._next = None


def _finish(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
