"""The kernels: those of this installation, and the same files as plain Python beside them."""

from __future__ import annotations

import importlib.machinery
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from eruca._wire.kernel import PLAIN, PlainFinder
from tests.paths import REPOSITORY

SOURCES = REPOSITORY / "src"
# As setup.py finds them.
PATHS = {
    ".".join(path.relative_to(SOURCES).with_suffix("").parts): path
    for path in sorted(SOURCES.glob("eruca/**/kernel/*.py"))
    if "import cython" in path.read_text()
}
NAMES = tuple(PATHS)


def find_built_file(name: str) -> Path | None:
    """The compiled file of a kernel for this interpreter, if there is one."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        built = PATHS[name].with_suffix(suffix)
        if built.exists():
            return built
    return None


def _is_kernel(name: str) -> bool:
    return name.startswith("eruca.") and "kernel" in name.split(".")[-2:]


@cache
def load_plain() -> dict[str, ModuleType]:
    """All kernels as plain Python, by name; they call each other, and nobody else gets to see them."""
    for name in NAMES:
        import_module(name)
    mine = {name: module for name, module in sys.modules.items() if _is_kernel(name)}
    try:
        for name in mine:
            del sys.modules[name]
        sys.meta_path.insert(0, PlainFinder)
        return {name: import_module(name) for name in NAMES}
    finally:
        sys.meta_path.remove(PlainFinder)
        sys.modules.update(mine)
        for name, module in mine.items():
            room, _, last = name.rpartition(".")
            setattr(sys.modules[room], last, module)


def load_twins(name: str) -> dict[str, ModuleType]:
    """A kernel as this installation has it, and as plain Python; only that when it is told to use no other."""
    built = import_module(name)
    return {"plain": built} if PLAIN else {"built": built, "plain": load_plain()[name]}
