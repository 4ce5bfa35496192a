"""CPU-bound work that takes long, run in a thread outside the loop.

There is only one thread, because Python runs one at a time anyway: with more, the loop would wait longer for its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="eruca-apart")


async def run_apart(work: Callable[_P, _T], *arguments: _P.args, **more: _P.kwargs) -> _T:
    """Call a function outside the loop; its data must not change meanwhile."""
    call: Callable[[], Any] = partial(work, *arguments, **more)
    result: _T = await asyncio.get_running_loop().run_in_executor(_THREAD, call)
    return result
