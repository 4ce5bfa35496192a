"""Members of consumer groups with our client, in separate processes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from eruca._wire.bodies import MessageQueue
from tests.clients.members import MemberSettings, ProgramMember, read_queues
from tests.interop.javapeer import JavaProcess, JavaProgram

PROGRAM = Path(__file__).with_name("groupmember.py")


class PythonProgram(JavaProgram):
    """The program `groupmember.py`, which takes and answers the same lines as its twin in Java."""

    def __init__(self, home: Path, *arguments: str) -> None:
        # -P: the modules beside the program are not for it.
        command = [sys.executable, "-P", str(PROGRAM), *arguments]
        JavaProcess.__init__(self, command, home / "groupmember.log", talks=True)
        self._read_to = 0


class PythonMember(ProgramMember):
    """A push consumer of our client; its handler is a coroutine function, or a plain one that runs in threads."""

    def __init__(self, home: Path, name: str, settings: MemberSettings, *, plain: bool = False) -> None:
        times = (settings.rebalance_ms, settings.lock_renew_ms, settings.lock_rely_ms)
        place = home / name
        program = PythonProgram(place, *map(str, times), "plain" if plain else "async")
        super().__init__(program, place, name, settings)

    def hear_queues(self) -> frozenset[MessageQueue]:
        """The queues that its listener was told of last."""
        (row,) = self._program.ask({"do": "balance"})
        return read_queues(row["told"])

    def terminate(self) -> int:
        """End it as an operator does, by SIGTERM; returns the exit status."""
        return self._program.end(signal.SIGTERM)
