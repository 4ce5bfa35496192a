"""Checkpoints as Spark writes them, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eruca._spark.offsets import encode_offsets
from eruca._wire.bodies import MessageQueue

Q0, Q1 = (MessageQueue("broker-a", number, "orders") for number in range(2))
CLICKS = MessageQueue("broker-a", 0, "clicks")
KAFKA = '{"payments":{"0":12}}'
NOTHING = "-"


def offsets(places: Mapping[MessageQueue, int], **beside: Any) -> str:
    """The line of a source."""
    return json.dumps(encode_offsets(places, **beside))


class Written:
    """A checkpoint that grows batch by batch."""

    def __init__(self, home: Path, *, version: str = "v1", is_stateful: bool = False) -> None:
        self.home = home
        self.version = version
        for name in ("offsets", "commits", *(["state"] if is_stateful else [])):
            (home / name).mkdir(parents=True)
        (home / "metadata").write_text('{"id":"5f5e2a53"}')

    def plan(self, batch: int, *sources: str) -> None:
        """Write the offsets of a batch."""
        names = [f"{number}:" if self.version == "v2" else "" for number in range(len(sources))]
        lines = [self.version, json.dumps({"batchTimestampMs": 1_795_042_044_483, "conf": {"a": "b"}})]
        lines += [name + text for name, text in zip(names, sources, strict=True)]
        self._write(self.home / "offsets" / str(batch), "\n".join(lines))

    def complete(self, batch: int) -> None:
        """Mark a batch as complete."""
        self._write(self.home / "commits" / str(batch), f'v1\n{{"nextBatchWatermarkMs":{batch}}}')

    def add(self, batch: int, *sources: str) -> None:
        """Plan and complete a batch."""
        self.plan(batch, *sources)
        self.complete(batch)

    def read(self, batch: int) -> list[str]:
        """The lines of the offsets of a batch."""
        return (self.home / "offsets" / str(batch)).read_text().split("\n")

    def list_files(self) -> Sequence[str]:
        """All files but the backups."""
        files = [path.relative_to(self.home) for path in self.home.rglob("*") if path.is_file()]
        return sorted(str(path) for path in files if path.parts[0] != "eruca-edits")

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0of the content")
