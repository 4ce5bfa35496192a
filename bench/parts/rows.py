"""The rows of a benchmark, measured on request: a separate process in either of two checkouts. NAME DIRECTORY SIZES

It runs `bench.NAME` of the checkout it is started in, which knows how to measure that checkout. All it needs there
is `run_bench`, a `QUICK` to put the sizes into, and a `Run.measure` for each row. It prints lines of JSON: a row that
is ready, and each sample of it. It reads lines with `again` or `next`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

from rich.progress import Progress

from bench.runner import Aim, Figure, Measurement, Run, Sample


class _Rows(Run):
    """Measures our side as often as requested, and no peers."""

    def __init__(self, directory: Path, answers: TextIO) -> None:
        super().__init__(directory, quick=True, progress=Progress(disable=True))
        self._answers = answers

    def measure(
        self, name: str, unit: str, ours: Measurement, peers: dict[str, Measurement], *, aim: Aim | None = None
    ) -> Figure:
        """Report that the row is ready, and wait for a command."""
        samples: list[Sample] = []
        self._tell({"name": name, "unit": unit})
        while (wish := sys.stdin.readline()) == "again\n":
            samples.append(ours())
            self._tell({"value": samples[-1].value, "details": samples[-1].details})
        if not wish:
            sys.exit()
        # Some rows are computed from others, and need samples of all. They are not reported.
        samples = samples or [ours()]
        return Figure(name, unit, samples, {peer: samples for peer in peers}, aim)

    def _tell(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)


def main() -> None:
    """Run the benchmark; whatever else is printed goes where errors go."""
    name, directory, sizes = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module = importlib.import_module(f"bench.{name}")
    module.QUICK = type(module.QUICK)(**json.loads(sizes))  # type: ignore[attr-defined]
    module.run_bench(_Rows(Path(directory), answers))


if __name__ == "__main__":
    main()
