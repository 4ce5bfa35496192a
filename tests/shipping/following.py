"""Follows a page literally, as somebody who knows nothing else: types its commands, saves its files, compares.

A fence of `sh` is typed into the first terminal, one marked `second` into the second. One marked `ctrl-c` is ended with
Ctrl-C when its output has what the page shows; so is a command of the second terminal at the end. After "Save this as
`name`:" a fence is a file. A fence without a language shows lines of the output of the fences before it, in any order.
After "In a browser:" there is a list of things to do in one: `tests/shipping/browsed.py`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.patience import PATIENCE_S
from tests.shipping.browsed import Browsed, browse
from tests.spark.streams import TOO_SLOW

_FENCE: Final = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_LIST: Final = re.compile(r"^In a browser:\n\n(?P<text>(?:.+\n)+)", re.MULTILINE)
_FILE: Final = re.compile(r"[Ss]ave this as\s+`([\w.]+)`:\s*\Z")
_COMMAND_SECONDS_MAX: Final = 1500
_POLL_S: Final = 0.2
_PAUSE_S: Final = 0.01


@dataclass(frozen=True)
class Step:
    """One thing to do, and what is seen then."""

    line: int
    kind: str
    text: str
    shown: tuple[str, ...] = ()
    is_second: bool = False
    is_interrupted: bool = False


def read_steps(page: Path) -> list[Step]:
    """Return everything there is to do on a page."""
    text = page.read_text(encoding="utf-8")
    steps: list[Step] = []
    fences = list(_FENCE.finditer(text))
    for number, fence in enumerate(fences):
        language, *marks = fence["info"].split() or [""]
        line = text.count("\n", 0, fence.start()) + 2
        saved = _FILE.search(text, 0, fence.start())
        after = fences[number + 1] if number + 1 < len(fences) else None
        is_shown = after is not None and not after["info"] and not text[fence.end() : after.start()].strip()
        shown = tuple(after["text"].splitlines()) if after is not None and is_shown else ()
        if saved:
            steps.append(Step(line, saved[1], fence["text"]))
        elif language == "sh":
            steps.append(Step(line, "sh", fence["text"], shown, "second" in marks, "ctrl-c" in marks))
        else:
            assert not language, f"line {line}: nobody knows what to do with {fence['info']}"
    lists = [Step(text.count("\n", 0, it.start()) + 3, "browser", it["text"]) for it in _LIST.finditer(text)]
    return sorted([*steps, *lists], key=lambda step: step.line)


class Terminal:
    """A shell that commands are typed into."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._changed = threading.Condition()
        self._output = ""
        self._marks = 0
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process of the shell."""
        return self._shell.pid

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            with self._changed:
                self._output += line
                self._changed.notify_all()

    def _wait_for(self, wanted: str, begin: int, seconds: float) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: wanted in self._output[begin:], seconds), (
                f"{wanted!r} does not appear in:\n{self._output[begin:]}"
            )

    def type(self, text: str) -> int:
        """Type lines; returns where their output begins."""
        begin = len(self._output)
        assert self._shell.stdin is not None
        self._shell.stdin.write(text if text.endswith("\n") else f"{text}\n")
        self._shell.stdin.flush()
        return begin

    def run(self, text: str) -> str:
        """Type lines one by one, wait for each, and return the output. Each has to succeed."""
        begin = len(self._output)
        for line in join_lines(text):
            self._marks += 1
            started = self.type(line)
            self.type(f'echo "=== {self._marks} $?"')
            self._wait_for(f"=== {self._marks} ", started, _COMMAND_SECONDS_MAX)
            status = re.search(rf"=== {self._marks} (\d+)", self._output[started:])
            assert status, self._output[started:]
            if status[1] != "0" and TOO_SLOW in self._output[started:]:
                # A person would run it again.
                self.run(line)
                continue
            assert status[1] == "0", f"`{line}` failed:\n{self._output[started:]}"
        return self._output[begin:]

    def watch(self, text: str, shown: tuple[str, ...]) -> None:
        """Type lines, and wait until the output has what the page shows."""
        begin = self.type(text)
        for line in shown:
            self._wait_for(line, begin, PATIENCE_S)

    def _wait_for_children(self) -> list[int]:
        deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while not (children := list_children(self.pid)):
            assert time.monotonic() < deadline, f"nothing runs that Ctrl-C could end:\n{self.read()}"
            pause.wait(_PAUSE_S)
        return children

    def read(self) -> str:
        """Everything that it has shown."""
        with self._changed:
            return self._output

    def interrupt(self) -> None:
        """Press Ctrl-C: every process of the terminal but the shell gets it, once the shell has started one."""
        self._marks += 1
        for pid in self._wait_for_children():
            os.kill(pid, signal.SIGINT)
        begin = self.type(f'echo "=== {self._marks}"')
        self._wait_for(f"=== {self._marks}", begin, PATIENCE_S)

    def close(self) -> None:
        """End the shell and what it has started."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        self._reader.join()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            pipe.close()


def list_children(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(each for child in children for each in list_children(child))]


def join_lines(text: str) -> Iterator[str]:
    """The commands of a fence: a line that ends with a backslash goes on."""
    yield from (line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#"))


def wait_until_free(shown: Iterable[str]) -> None:
    """Wait until nobody else on this machine listens at the addresses that a page shows."""
    deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
    for address in re.findall(r"\b127\.0\.0\.1:(\d+)", " ".join(shown)):
        while _is_taken(int(address)):
            assert time.monotonic() < deadline, f"another process listens on port {address}"
            pause.wait(_POLL_S)


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


def follow(page: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Step]:
    """Do everything on a page in an empty folder; yields each step when it is done."""
    first, second = Terminal(folder, environment), Terminal(folder, environment)
    is_busy = False
    try:
        for step in read_steps(page):
            terminal = second if step.is_second else first
            if step.kind == "browser":
                browse(step.text, Browsed(terminal=second.read))
            elif step.kind != "sh":
                (folder / step.kind).write_text(step.text)
            elif step.is_second:
                if is_busy and step.is_interrupted:
                    terminal.interrupt()
                wait_until_free(step.shown)
                terminal.watch(step.text, step.shown)
                is_busy = True
            elif step.is_interrupted:
                terminal.watch(step.text, step.shown)
                terminal.interrupt()
            else:
                said = terminal.run(step.text)
                missing = [line for line in step.shown if line not in said]
                assert not missing, f"line {step.line}: {missing} not in:\n{said}"
            yield step
    finally:
        second.close()
        first.close()
