"""`make torture ONLY=limits`: more connections, slower requests and more unread answers than a server has room for.

The servers have accounts, and each part of `limitparts` uses the weakest one that may send its requests, or none.
Beside it a good client sends and pulls. Its 99th percentile stays within 5 times that of an idle server, or below 10 ms
(an idle server may have less than 2), the memory grows by less than 200 MB, and comes back afterwards. A miss makes it
exit with 1.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from tests.integration.broker.serving import Serving
from tests.torture.hostile import P99_MS_FLOOR, Aims, Attacking, Measuring, is_busy, measure_idle, measure_part
from tests.torture.limitparts import FRAME_SECONDS, KEYS, KEYS_TO_LOOK, METRICS, PARTS

GROWTH_MAX = 200 * 1000 * 1000
# What may stay of it: bounded caches, and what Python keeps for the next time: one object keeps a megabyte of its heap.
LEFT_MAX = 80 * 1000 * 1000
_RETURN_S_MAX = 60.0
_GOOD = ("goodclient", "secret-of-the-good")
_WEAK = ("weakclient", "secret-of-the-weak")
_LOOKS = ("plainclient", "secret-of-plain")
_BROKER = ("brokerclient", "secret-of-brokers")
_ACCOUNTS = f"""
accounts:
- {{accessKey: {_GOOD[0]}, secretKey: {_GOOD[1]}, admin: true, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
- {{accessKey: {_WEAK[0]}, secretKey: {_WEAK[1]}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
- {{accessKey: {_LOOKS[0]}, secretKey: {_LOOKS[1]}}}
- {{accessKey: {_BROKER[0]}, secretKey: {_BROKER[1]}, admin: true, broker: true}}
"""


def start_servers(directory: Path) -> Serving:
    """Start `eruca up` with accounts. Blocks."""
    file = directory / "plain_acl.yml"
    file.write_text(_ACCOUNTS, encoding="utf-8")
    arguments = ["--server-max-frame-seconds", str(FRAME_SECONDS)]
    arguments += ["--option", "aclEnable=true", "--option", f"aclFile={file}"]
    environment = {"ERUCA_BROKER_ACCESS_KEY": _BROKER[0], "ERUCA_BROKER_SECRET_KEY": _BROKER[1]}
    os.environ[KEYS], os.environ[KEYS_TO_LOOK] = " ".join(_WEAK), " ".join(_LOOKS)
    serving = Serving(directory, *arguments, environment=environment)
    os.environ[METRICS] = serving.metrics
    return serving


async def wait_for_return(serving: Serving, before: int, seconds_max: float) -> int:
    """Wait until the memory is back; returns what is left of the growth."""
    deadline = time.monotonic() + seconds_max
    while True:
        left = await asyncio.to_thread(serving.memory) - before
        if left <= LEFT_MAX or time.monotonic() >= deadline:
            return left
        await asyncio.sleep(0.2)


async def run_limits(directory: Path, names: list[str], aims: Aims, *, size: float = 1.0) -> list[str]:
    """Run parts one after the other; returns the aims that were missed."""
    serving = await asyncio.to_thread(start_servers, directory)
    misses: list[str] = []
    try:
        measuring = await asyncio.to_thread(Measuring, serving, *_GOOD)
        attacking = await asyncio.to_thread(Attacking, serving, size, "tests.torture.limitparts")
        try:
            idle = await measure_idle(measuring, size)
            for name in names:
                before = await asyncio.to_thread(serving.memory)
                row = await measure_part(name, measuring, attacking)
                misses += row.list_misses(Aims(aims.silence_ms, aims.slower, before + aims.memory), idle)
                left = await wait_for_return(serving, before, _RETURN_S_MAX)
                print(f"  {'':14} memory grew by {(row.memory - before) / 1e6:.0f} MB, {left / 1e6:.0f} MB are left")
                if left > LEFT_MAX:
                    misses.append(f"{name}: {left / 1e6:.0f} MB did not come back, at most {LEFT_MAX / 1e6:.0f}")
        finally:
            await asyncio.to_thread(attacking.end)
            await asyncio.to_thread(measuring.end)
    finally:
        status = await asyncio.to_thread(serving.end)
    if status != 0:
        misses.append(f"it stopped with status {status}")
    mistakes = [line for line in await asyncio.to_thread(serving.complaints) if "Traceback" in line]
    return misses + ([f"the log has {len(mistakes)} tracebacks"] if mistakes else [])


def torture(minutes: float | None) -> int:
    """Run all parts; 0 when every aim was met."""
    busy = is_busy()
    chosen = Aims.choose(busy=busy)
    aims = Aims(chosen.silence_ms, chosen.slower, GROWTH_MAX)
    print(
        f"limits: a {'busy' if busy else 'quiet'} machine, with accounts: at most "
        f"{aims.silence_ms:.0f} ms of silence, {aims.slower:g} times the p99 of an idle server or {P99_MS_FLOOR:g} ms, "
        f"{aims.memory / 1e6:.0f} MB more, of which {LEFT_MAX / 1e6:.0f} MB stay"
    )
    chosen_parts = os.environ.get("LIMITS_PARTS", "")
    names = [name for name in PARTS if not chosen_parts or name in chosen_parts.split(",")]
    with tempfile.TemporaryDirectory(prefix="limits-") as directory:
        misses = asyncio.run(run_limits(Path(directory), names, aims))
    for miss in misses:
        print(f"MISSED {miss}")
    print(f"limits: {len(names)} parts, {f'{len(misses)} aims missed' if misses else 'well'}")
    return 1 if misses else 0
