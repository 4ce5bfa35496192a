"""Loops of the wire room, compiled where there is a compiler: records, digests, batches, answers.

This module decides how the kernels of all rooms are loaded. `ERUCA_PLAIN=1` in the environment disables compiled ones:
the same files run as plain Python, slower, where a debugger can step through them.
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
    """Finds the sources of kernels, even where they are compiled."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module, if it is in a folder of kernels."""
        if not path or not name.startswith("eruca.") or name.split(".")[-2] != "kernel":
            return None
        return FileFinder(path[0], (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)


def load_kernels(package: str, path: Sequence[str]) -> None:
    """Import all kernels of a room, because a compiled one may call another in C. Raises ImportError.

    A compiled kernel without its source is left over from an older version and is skipped.
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
