"""Where the bytes of a buffer lie, for kernels that run as plain Python; compiled ones have `views.pxd` instead."""

from __future__ import annotations

from typing import Any


def open_to_read(view: Any) -> Any:
    """The bytes of a view, to be read by their place."""
    return view


def open_to_write(view: Any) -> Any:
    """The bytes of a view, to be written by their place."""
    return memoryview(view)
