from __future__ import annotations

import asyncio
from functools import partial

from eruca._ground.several import run_some


async def test_all_works_run_and_few_at_a_time() -> None:
    now, most, done = 0, 0, []

    async def work(number: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        done.append(number)

    await run_some([partial(work, number) for number in range(20)], 3)
    assert sorted(done) == list(range(20))
    assert most == 3
