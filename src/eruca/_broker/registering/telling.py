"""One registration after the other with one name server, and what happens when it does not take one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from eruca._ground.repeating import Repeating

# A name server that could not be told is told of the next change after this pause; whoever waits does not wait for it.
_FAILED_PAUSE_S: Final = 1.0
# Between two registrations there is a pause as long as the last one took, but no longer: what changes then goes
# together.
_PAUSE_S_MAX: Final = 0.1
# A registration comes when there is something to tell, and not before.
_NEVER_S: Final = 86_400.0


class Teller:
    """Registers with one name server, once at a time: what changes meanwhile makes one registration more."""

    def __init__(self, what: str, register: Callable[[], Awaitable[bool]]) -> None:
        """`what` names the registration in logs; `register` says whether the name server took it."""
        self._register = register
        self._loop = asyncio.get_running_loop()
        # Those who wait for the registration that has not begun yet.
        self._next: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rest_until = 0.0
        self._is_busy = False
        self._failed = False
        self._hurries = False
        # It is woken whenever there is something to tell.
        self._telling = Repeating(what, self._tell, lambda: _NEVER_S, retry_s=_NEVER_S)
        self._telling.start()

    def ask(self, *, now: bool = False) -> asyncio.Future[None]:
        """Register soon, or now; the future is done when that is done, or when it could not be."""
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
        """Begin with what was asked for meanwhile, after the pause unless somebody hurries."""
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
        """Tell nothing more; what is on its way is given up."""
        await self._telling.stop()
        self._stop_timer()
        _finish(self._next)
        self._next = None


def _finish(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
