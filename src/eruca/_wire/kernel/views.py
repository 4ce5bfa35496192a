"""The bytes of a buffer, for kernels that run as plain Python; compiled ones use `views.pxd` instead."""

from __future__ import annotations

from typing import Any


def open_to_read(view: Any) -> Any:
    """The bytes of a view, for reading by place."""
    return view


def open_to_write(view: Any) -> Any:
    """The bytes of a view, for writing by place."""
    return memoryview(view)
