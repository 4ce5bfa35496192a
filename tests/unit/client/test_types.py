"""Handlers and bodies are typed: mypy and pyright take the right ones and refuse the wrong ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

HEAD = """
from dataclasses import dataclass
import msgspec
from eruca import Consumer, Message, Outcome, sync
consumer = Consumer("127.0.0.1:9876", group="g")
plain = sync.Consumer("127.0.0.1:9876", group="g")
@dataclass
class Order: id: str
class Cart(msgspec.Struct): id: str
"""
GOOD = [
    '@consumer.handler("a")\nasync def f{n}(message: Message) -> None: ...',
    '@consumer.handler("a")\nasync def f{n}(message: Message) -> Outcome | None: return Outcome.DEAD',
    '@consumer.handler("a")\ndef f{n}(message: Message) -> None: ...',
    '@consumer.handler("a", batch=8)\nasync def f{n}(messages: list[Message]) -> None: ...',
    '@consumer.handler("a", batch=8)\ndef f{n}(messages: list[Message]) -> Outcome: return Outcome.DONE',
    '@plain.handler("a")\ndef f{n}(message: sync.Message) -> None: ...',
    '@plain.handler("a")\nasync def f{n}(message: Message) -> None: ...',
    '@plain.handler("a", batch=8)\ndef f{n}(messages: list[sync.Message]) -> None: ...',
    '@consumer.handler("a")\nasync def f{n}(order: Order) -> None: ...',
    '@consumer.handler("a")\ndef f{n}(cart: Cart) -> Outcome | None: return None',
    '@consumer.handler("a")\nasync def f{n}(order: Order, message: Message) -> None: ...',
    '@plain.handler("a")\ndef f{n}(order: Order) -> None: ...',
    '@plain.handler("a")\nasync def f{n}(order: Order) -> None: ...',
    '@plain.handler("a")\ndef f{n}(order: Order, message: sync.Message) -> None: ...',
]
BAD = [
    '@consumer.handler("a")\nasync def f{n}(message: Message) -> bool: return True',
    '@consumer.handler("a")\ndef f{n}(message: Message) -> bool: return True',
    '@consumer.handler("a")\nasync def f{n}(messages: list[Message]) -> None: ...',
    '@consumer.handler("a", batch=8)\nasync def f{n}(message: Message) -> None: ...',
    '@consumer.handler("a")\nasync def f{n}() -> None: ...',
    '@consumer.handler("a")\nasync def f{n}(message: str) -> None: ...',
    '@plain.handler("a")\ndef f{n}(message: sync.Message) -> bool: return True',
    '@plain.handler("a")\ndef f{n}(message: Message) -> None: ...',
    '@plain.handler("a", batch=8)\ndef f{n}(message: sync.Message) -> None: ...',
    '@consumer.handler("a")\nasync def f{n}(order: Order) -> bool: return True',
    '@consumer.handler("a")\nasync def f{n}(order: Order, more: str) -> None: ...',
    '@consumer.handler("a", batch=8)\nasync def f{n}(orders: list[Order]) -> None: ...',
    '@plain.handler("a")\ndef f{n}(order: Order) -> bool: return True',
]


BODIES_HEAD = """
from eruca import Producer, TransactionalProducer, sync
from eruca.serializers import json_serializer, text_serializer
def dump(value: int | None) -> bytes: return b"x"
plain = Producer("127.0.0.1:9876", group="g")
text = Producer("127.0.0.1:9876", group="g", serializer=text_serializer())
typed = Producer("127.0.0.1:9876", group="g", serializer=dump)
json = Producer("127.0.0.1:9876", group="g", serializer=json_serializer())
waiting = sync.Producer("127.0.0.1:9876", group="g")
waiting_text = sync.Producer("127.0.0.1:9876", group="g", serializer=text_serializer())
def send_all(producer: Producer) -> None: ...
"""
GOOD_BODIES = [
    'async def f{n}() -> None:\n    await plain.send("a", b"x")',
    'async def f{n}() -> None:\n    await plain.send_batch("a", [bytearray(b"x"), memoryview(b"x")])',
    'async def f{n}() -> None:\n    await text.send("a", "x")',
    'async def f{n}() -> None:\n    await typed.send_soon("a", None)',
    'async def f{n}() -> None:\n    await json.request("a", {{"id": 1}})',
    'def f{n}() -> None:\n    waiting.send("a", b"x")',
    'def f{n}() -> None:\n    waiting_text.send_soon("a", "x")',
    "def f{n}() -> None:\n    send_all(plain)",
    "def f{n}(producer: Producer[str]) -> None:\n    producer.send_oneway",
]
BAD_BODIES = [
    'async def f{n}() -> None:\n    await plain.send("a", "x")',
    'async def f{n}() -> None:\n    await plain.send_batch("a", ["x"])',
    'async def f{n}() -> None:\n    await text.send("a", b"x")',
    'async def f{n}() -> None:\n    await typed.send_soon("a", "x")',
    'async def f{n}(producer: TransactionalProducer) -> None:\n    producer.transaction("a", "x")',
    'def f{n}() -> None:\n    waiting.send("a", "x")',
    'def f{n}() -> None:\n    waiting_text.send_soon("a", b"x")',
    "def f{n}() -> None:\n    send_all(text)",
]


Checker = Callable[[Path], list[str]]


def run_mypy(script: Path) -> list[str]:
    """Run mypy with the cache of the project, so that only the script is read anew; return its lines."""
    return run(["mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), str(script)])


def run_pyright(script: Path) -> list[str]:
    """Run pyright, as basedpyright packages it: with Node in a wheel, so that nothing is downloaded at run time."""
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(REPOSITORY / "src")]}
    config = script.with_name("pyrightconfig.json")
    config.write_text(json.dumps(settings), encoding="utf-8")
    return run(["basedpyright", "-p", str(config), "--pythonpath", sys.executable, str(script)])


def run(command: list[str]) -> list[str]:
    """Run a module and return the lines it printed."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


CHECKERS = [
    pytest.param(run_mypy, id="mypy"),
    pytest.param(
        run_pyright,
        id="pyright",
        marks=pytest.mark.skipif(find_spec("basedpyright") is None, reason="basedpyright is not installed"),
    ),
]


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_sees_wrong_handlers(checker: Checker, tmp_path: Path) -> None:
    check(checker, HEAD, GOOD, BAD, tmp_path)


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_sees_wrong_bodies(checker: Checker, tmp_path: Path) -> None:
    check(checker, BODIES_HEAD, GOOD_BODIES, BAD_BODIES, tmp_path)


def check(checker: Checker, head: str, good: list[str], bad: list[str], home: Path) -> None:
    """Assert that a checker refuses the bad parts, of two lines each, and no other."""
    parts = [head.strip(), *[part.format(n=number) for number, part in enumerate(good + bad)]]
    script = home / "snippets.py"
    script.write_text("\n".join(parts) + "\n")
    printed = checker(script)
    found = [re.search(r"snippets\.py:(\d+)(?::\d+)?(?: -|:) error:", line) for line in printed]
    lines = {int(match[1]) for match in found if match}
    first = len(head.strip().splitlines()) + 1
    starts = [first + 2 * number for number in range(len(good + bad))]
    refused = [number for number, start in enumerate(starts) if lines & {start, start + 1}]
    assert refused == list(range(len(good), len(good + bad))), "\n".join(printed)
