"""The comparison with other libraries is right about ours, and counts the lines of all."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from collections import Counter
from inspect import signature
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca import MessageQueue, Producer, Receipt, SendStatus
from eruca.errors import ErucaError
from eruca.testing import EmbeddedBroker
from tests.clients.guidepage import Block, read_blocks
from tests.clients.test_guide import check_page, run_page
from tests.integration.broker.conftest import excuse_new_files
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

PAGE = REPOSITORY / "docs" / "guide" / "comparison.md"
CHINESE = REPOSITORY / "docs" / "zh" / "guide" / "comparison.md"
OTHERS = REPOSITORY / "tests" / "clients" / "comparison_code.md"
LIBRARIES = ["Eruca", "aiokafka", "nats-py", "confluent-kafka", "FastStream"]
TASKS = range(1, 21)
COLUMNS = 120

# A row of the table: number, name, a count for each library, and who is ahead.
_ROW = re.compile(r"^\| (\d+) \|[^|]+\|" + r" (\d+|-)(?: \(NATS\))? \|" * len(LIBRARIES) + r"[^|]+\|$", re.MULTILINE)
_TASK = re.compile(r"^## (\d+)\b")
_LIBRARY = re.compile(r"^### (.+)$")


def count_lines(text: str) -> int:
    """The lines of a block without imports, blank lines and comments."""
    imports: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if line.strip() and line.strip()[0] != "#" and number not in imports)


def find_places(page: Path) -> list[tuple[int, str]]:
    """Task and library of each line of a page; 0 before the first task, and Eruca where no library is named."""
    places = []
    task, library = 0, LIBRARIES[0]
    for line in page.read_text(encoding="utf-8").splitlines():
        if found := _TASK.match(line):
            task, library = int(found[1]), LIBRARIES[0]
        elif found := _LIBRARY.match(line):
            library = found[1]
        places.append((task, library))
    return places


def count_page(page: Path, blocks: list[Block]) -> Counter[tuple[int, str]]:
    """The lines of blocks, by task and library."""
    places = find_places(page)
    counts: Counter[tuple[int, str]] = Counter()
    for block in blocks:
        counts[places[block.line - 1]] += count_lines(block.text)
    return counts


def read_table(page: Path) -> dict[tuple[int, str], int]:
    """The counts that a page claims, by task and library."""
    rows = _ROW.findall(page.read_text(encoding="utf-8"))
    assert [int(number) for number, *_ in rows] == list(TASKS)
    return {
        (int(number), library): int(count)
        for number, *counts in rows
        for library, count in zip(LIBRARIES, counts, strict=True)
        if count != "-"
    }


def find_counted() -> list[Block]:
    """The blocks of ours that count."""
    return [block for block in read_blocks(PAGE) if block.counted]


def test_every_block_of_ours_does_what_the_page_says(tmp_path: Path) -> None:
    check_page(PAGE, run_page(PAGE, tmp_path))


class Failures:
    """A hook that tells when a try to send has failed."""

    def __init__(self) -> None:
        self.came = asyncio.Event()

    def before_send(self, parcel: object, queue: MessageQueue) -> None:
        """A message is about to be sent."""

    def after_send(
        self, parcel: object, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, seconds: float
    ) -> None:
        """It was sent, or was not."""
        if error is not None:
            self.came.set()


async def test_a_send_outlasts_a_broker_that_is_away(tmp_path: Path, forbid_blocking_calls: BlockBuster) -> None:
    excuse_new_files(forbid_blocking_calls)
    assert signature(Producer).parameters["timeout"].default > 10  # which is how long it may be away
    failures = Failures()
    async with EmbeddedBroker(tmp_path) as first:
        port = int(first.address.rpartition(":")[2])
        producer = Producer(first.nameserver, group="shop", timeout=PATIENCE_S, hooks=[failures])
        await producer.start()
        await producer.send("orders", b"before")
    sending = asyncio.create_task(producer.send("orders", b"one melon"))
    await asyncio.wait_for(failures.came.wait(), PATIENCE_S)
    assert not sending.done()
    async with EmbeddedBroker(tmp_path, port=port):
        assert (await sending).status is SendStatus.STORED
        await producer.close()


@pytest.mark.parametrize("page", [PAGE, CHINESE], ids=["english", "chinese"])
def test_the_table_has_the_lines_of_the_code(page: Path) -> None:
    counted = count_page(PAGE, find_counted()) + count_page(OTHERS, read_blocks(OTHERS))
    assert read_table(page) == dict(counted)


def test_ours_does_every_task() -> None:
    assert {task for task, library in count_page(PAGE, find_counted()) if library == LIBRARIES[0]} == set(TASKS)


def test_each_other_library_has_code_or_none_for_each_task() -> None:
    sections = re.findall(r"^### (.+)\n\n(none$|```python)", OTHERS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [library for library, _ in sections] == LIBRARIES[1:] * len(TASKS)


def test_counted_code_is_formatted(tmp_path: Path) -> None:
    for number, block in enumerate([*find_counted(), *read_blocks(OTHERS)]):
        (tmp_path / f"block_{number}.py").write_text(block.text)
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", str(COLUMNS), "--diff"]
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("from a import (\n    b,\n    c,\n)\n\n# why\nawait b()  # here\n", 1),
        ("async def f():\n    import os\n    return os\n", 2),
        ("text = '''\n# two\n'''\n", 2),
    ],
)
def test_lines_are_counted(text: str, lines: int) -> None:
    assert count_lines(text) == lines
