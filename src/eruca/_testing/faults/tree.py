"""Copies a real directory to the fault disk and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from eruca._testing.faults.image import BLOCK

if TYPE_CHECKING:
    from eruca._testing.faults.disk import SimulatedDisk


def load_tree(disk: SimulatedDisk, source: Path, at: Path) -> None:
    """Copy a real directory to the disk, with the times of its files, and make all of it durable."""
    disk.make_directory(at)
    for folder, names, files in os.walk(source):
        names.sort()
        target = at / Path(folder).relative_to(source)
        disk.make_directory(target)
        for name in sorted(files):
            real = Path(folder) / name
            disk.write_file(target / name, real.read_bytes())
            disk.touch(target / name, real.stat().st_mtime_ns // 1_000_000)
    disk.journal.commit()


def dump_tree(disk: SimulatedDisk, target: Path, at: Path) -> None:
    """Copy a directory of the disk to a real one; blocks of zeros become holes."""
    top = Path("/") / at
    for folder in disk.directories():
        if folder.is_relative_to(top):
            (target / folder.relative_to(top)).mkdir(parents=True, exist_ok=True)
    images = disk.snapshot()
    for path, data in images.items():
        if not path.is_relative_to(top):
            continue
        real = target / path.relative_to(top)
        with real.open("wb") as file:
            file.truncate(len(data))
            for start in range(0, len(data), BLOCK):
                block = data[start : start + BLOCK]
                if block.strip(b"\0"):
                    file.seek(start)
                    file.write(block)
        modified_ns = disk.journal.tree[str(path)].modified_ms * 1_000_000  # a call would count, and might fail
        os.utime(real, ns=(modified_ns, modified_ns))
