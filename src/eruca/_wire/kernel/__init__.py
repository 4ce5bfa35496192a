"""Loops of the wire room that are compiled where there is a compiler: records, digests, batches, answers.

How kernels of all rooms are loaded is decided here. `ERUCA_PLAIN=1` in the environment leaves compiled ones aside: the
same files run as plain Python, slower, where a debugger can look into them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

PLAIN = os.environ.get("ERUCA_PLAIN", "") not in {"", "0"}


class PlainFinder:
    """Finds the sources of kernels, also where they are compiled."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module, if it is in a folder of kernels."""
        if not path or not name.startswith("eruca.") or name.split(".")[-2] != "kernel":
            return None
        return FileFinder(path[0], (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)


def load_kernels(package: str, path: Sequence[str]) -> None:
    """Import all kernels of a room, because one that is compiled may call another in C. Raises ImportError.

    A compiled one without its source was left behind by an older version, and nobody asks for it.
    """
    for name in sorted(name.removesuffix(".py") for name in os.listdir(path[0]) if name.endswith(".py")):
        if name == "__init__":
            continue
        try:
            import_module(f"{package}.{name}")
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise ImportError(
                f"{package}.{name} cannot be loaded: {error}. Some kernels of this installation are not "
                "compiled, or are of another version. Compile all again with `make clean setup` in a checkout; "
                "elsewhere install again with `pip install --force-reinstall --no-deps eruca`. With ERUCA_PLAIN=1 "
                "everything runs without compiled kernels, slower"
            ) from error


if PLAIN:
    sys.meta_path.insert(0, PlainFinder)
load_kernels(__name__, __path__)
