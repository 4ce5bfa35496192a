"""Command lines of `eruca` that are shown to people, who copy them into a shell."""

from __future__ import annotations

import shlex


def write_command(*words: object) -> str:
    """Return a command of `eruca`, quoted for a shell: names may come from strangers."""
    return shlex.join(["eruca", *map(str, words)])
