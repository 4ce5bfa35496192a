"""Handlers are typed: mypy takes the right ones and refuses the wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_mypy_sees_wrong_handlers(tmp_path: Path) -> None:
    parts = [HEAD.strip(), *[part.format(n=number) for number, part in enumerate(GOOD + BAD)]]
    script = tmp_path / "handlers.py"
    script.write_text("\n".join(parts) + "\n")
    # The cache of the project, so that only the snippets are read anew.
    command = [sys.executable, "-m", "mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), str(script)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if "handlers.py:" in line and ": error:" in line]
    lines = {int(line.split(":")[1]) for line in errors}
    first = len(HEAD.strip().splitlines()) + 1
    starts = [first + 2 * number for number in range(len(GOOD + BAD))]
    refused = [number for number, start in enumerate(starts) if lines & {start, start + 1}]
    assert refused == list(range(len(GOOD), len(GOOD + BAD))), done.stdout + done.stderr
