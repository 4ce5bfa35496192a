"""Runs the Python blocks of a page one after the other, as its reader would.

    python -m tests.clients.guidepage PAGE [NAMESERVER]


A block with `await` at its top runs in one event loop that all such blocks share; names stay from block to block. What
a block prints must be what the fence behind it, one without a language, says. One that is marked `endless` is ended
when it has printed that much. The mark `counted` is for `test_comparison.py`. A block of `sh` that is marked `run` has
one `eruca` command in each line, all of which must succeed; what they print is not compared. They find the name server
through the environment.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from click.testing import CliRunner

from eruca import Producer
from eruca._cli.main import main as main_command
from eruca.testing import EmbeddedBroker
from tests.clients.stage import create_topic
from tests.patience import PATIENCE_S

# What pages call their name server.
NAMESERVER = "127.0.0.1:9876"
# Topics of which a page consumes before anything is sent to them.
_TOPICS = ("prices",)
_BLOCK_SECONDS_MAX = PATIENCE_S
_POLL_S = 0.01

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of Python, and what it prints."""

    line: int
    text: str
    endless: bool
    printed: tuple[str, ...]
    counted: bool = False
    commands: bool = False


def read_blocks(page: Path) -> list[Block]:
    """The Python blocks of a page."""
    text = page.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    found = []
    for number, fence in enumerate(fences):
        language, *marks = fence["info"].split() or [""]
        if language != "python" and [language, *marks] != ["sh", "run"]:
            continue
        printed: tuple[str, ...] = ()
        after = fences[number + 1] if number + 1 < len(fences) else None
        if after is not None and not after["info"] and not text[fence.end() : after.start()].strip():
            printed = tuple(after["text"].splitlines())
        line = text.count("\n", 0, fence.start()) + 2
        found.append(Block(line, fence["text"], "endless" in marks, printed, "counted" in marks, language == "sh"))
    return found


class Reader:
    """Runs blocks in one namespace and one loop."""

    def __init__(self, page: Path, nameserver: str) -> None:
        self._page = page
        self._nameserver = nameserver
        self._printed: list[str] = []
        # Held while somebody prints, who may be in any thread.
        self._printing = threading.Condition()
        # A module that can be found by its name: taskiq looks for the one of a task.
        module = sys.modules["page"] = ModuleType("page")
        self._names: dict[str, Any] = vars(module)
        self._names["print"] = self._print
        self._loop = asyncio.Runner()

    def close(self) -> None:
        """End the loop."""
        self._loop.close()

    def _print(self, *what: object, sep: str = " ") -> None:
        with self._printing:
            self._printed.append(sep.join(str(item) for item in what))
            self._printing.notify_all()

    def run(self, block: Block) -> None:
        """Run one block. Raises what it raises, and AssertionError when it prints something else."""
        self._printed.clear()
        if block.commands:
            self._run_commands(block)
            return
        text = "\n" * (block.line - 1) + block.text.replace(NAMESERVER, self._nameserver)
        code = compile(text, self._page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            self._loop.run(self._run_async(block, code))
        elif block.endless:
            self._run_endless(block, code)
        else:
            exec(code, self._names)
        assert tuple(self._printed) == block.printed, f"line {block.line} printed {self._printed}"

    def _run_commands(self, block: Block) -> None:
        environment = {"NAMESRV_ADDR": self._nameserver}
        for line in block.text.replace(NAMESERVER, self._nameserver).splitlines():
            result = CliRunner().invoke(main_command, shlex.split(line)[1:], env=environment)
            assert result.exit_code == 0, f"{line}\n{result.output}{result.exception!r}"

    async def _run_async(self, block: Block, code: CodeType) -> None:
        work = eval(code, self._names)
        async with asyncio.timeout(_BLOCK_SECONDS_MAX):
            if not block.endless:
                await work
                return
            task = asyncio.get_running_loop().create_task(work)
            while not task.done() and len(self._printed) < len(block.printed):
                await asyncio.wait([task], timeout=_POLL_S)
            assert not task.done(), f"line {block.line} is not endless: {task}"
            task.cancel()
            await asyncio.wait([task])

    def _run_endless(self, block: Block, code: CodeType) -> None:
        """Run a plain block until it has printed enough, and close its consumer as a signal would."""
        watch = threading.Thread(target=self._close_when_done, args=(block,), daemon=True)
        watch.start()
        exec(code, self._names)
        watch.join()

    def _close_when_done(self, block: Block) -> None:
        with self._printing:
            self._printing.wait_for(lambda: len(self._printed) >= len(block.printed), _BLOCK_SECONDS_MAX)
        self._names["consumer"].close()


def create_topics(nameserver: str) -> None:
    """Make the topics that a page finds there."""

    async def create() -> None:
        async with Producer(nameserver, group="guidepage") as producer:
            for topic in _TOPICS:
                await create_topic(producer, topic)

    asyncio.run(create())


def main(page: Path, nameserver: str = "") -> None:
    """Run a page, against its own broker unless there is one."""
    blocks = read_blocks(page)
    with ExitStack() as stack:
        if not nameserver:
            nameserver = stack.enter_context(EmbeddedBroker(hurry=True)).nameserver
        create_topics(nameserver)
        reader = Reader(page, nameserver)
        stack.callback(reader.close)
        for block in blocks:
            began = time.monotonic()
            reader.run(block)
            print(f"line {block.line}: as it says, {time.monotonic() - began:.1f} s")
    print(f"{len(blocks)} blocks")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
