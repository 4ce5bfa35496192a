"""Access control: what the check of a signed request costs, compared with the HMAC alone.

A request is checked as it arrives: header fields read, account found, signature computed, permission for the topic
looked up. The peer computes the same HMAC-SHA1 over bytes that are ready.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from pathlib import Path

from bench.runner import Run, Sample
from eruca._access.control import AccessControl
from eruca._access.options import ACCOUNTS_NAME, AccessOptions
from eruca._ground.yamlfiles import write_yaml
from eruca._net.handlers import HandlerTable, refuse_unknown
from eruca._net.link import Link
from eruca._net.server import Server, ServerSettings
from eruca._wire.codes import RequestCode
from eruca._wire.frame import FrameBuffer, encode_command, make_request
from eruca._wire.headers import SendMessageV2Header
from eruca._wire.signature import Credentials, build_content

KNOWS_BEFORE = False
CHECKS = 100_000
BODIES = (128, 1024, 65_536)
ACCOUNTS = 1000
ACCOUNT = Credentials("account-500", "secret-of-account-500")
PROPERTIES = "UNIQ_KEY\x017F0000010001000000000000000001F4\x02KEYS\x01order-1\x02TAGS\x01vip\x02WAIT\x01true"


def run_bench(run: Run) -> None:
    """Measure bodies of several sizes."""
    with run.scratch() as directory:
        asyncio.run(_measure_all(run, directory))


async def _measure_all(run: Run, directory: Path) -> None:
    accounts = [
        {
            "accessKey": f"account-{number}",
            "secretKey": f"secret-of-account-{number}",
            "topicPerms": [f"topic-{each}=PUB|SUB" for each in range(10)],
        }
        for number in range(ACCOUNTS)
    ]
    path = directory / ACCOUNTS_NAME
    await asyncio.to_thread(path.write_bytes, write_yaml({"accounts": accounts}))
    access = AccessControl(AccessOptions(enabled=True, file=str(path)))
    await access.start()
    try:
        for size in BODIES:
            count = run.scale(CHECKS if size <= 1024 else CHECKS // 10)
            check, sign = _make_loops(access, size)
            run.measure(f"check of a send, {size} B", "requests/s", _time(check, count), {"HMAC": _time(sign, count)})
    finally:
        await access.stop()


def _make_loops(access: AccessControl, size: int) -> tuple[Callable[[], object], Callable[[], object]]:
    header = SendMessageV2Header("producers", "topic-5", "TBW102", 4, 0, 0, 1, 0, properties=PROPERTIES)
    request = make_request(RequestCode.SEND_MESSAGE_V2, header, b"x" * size)
    ACCOUNT.sign(request)
    (command,) = FrameBuffer().feed(encode_command(request))
    content, secret = build_content(command.ext_dict(), command.body), ACCOUNT.secret_key.encode()
    table = HandlerTable(access.guard())
    table.add_raw(RequestCode.SEND_MESSAGE_V2, lambda link, command: None)
    handler = table.handlers[RequestCode.SEND_MESSAGE_V2]
    link = Link(Server({}, refuse_unknown, ServerSettings()), serves=True)
    return lambda: handler(link, command), lambda: hmac.digest(secret, content, "sha1")


def _time(work: Callable[[], object], count: int) -> Callable[[], Sample]:
    def once() -> Sample:
        started, cpu = time.perf_counter(), time.thread_time()
        for _ in range(count):
            work()
        seconds, used = time.perf_counter() - started, time.thread_time() - cpu
        return Sample(count / seconds, {"thread cpu us": used / count * 1e6})

    return once
