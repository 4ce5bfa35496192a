"""The type of the bodies that a producer sends: what its serializer takes, and bytes without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Type checkers know it without the package, which is therefore not a dependency.
    from typing_extensions import TypeVar

    Body = TypeVar("Body", default=bytes | bytearray | memoryview)
else:
    from typing import TypeVar

    Body = TypeVar("Body")
