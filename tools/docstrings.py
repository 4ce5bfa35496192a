"""Examples in docstrings become code in the documentation site: an extension of griffe, which mkdocs.yml names."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

# Lines of the interpreter, and what it prints after them, up to an empty line.
_EXAMPLE: Final = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)


def fence_examples(text: str) -> str:
    """Return a docstring with its examples in fences."""
    return _EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", text)


class Examples(griffe.Extension):
    """Puts the examples of every docstring into fences."""

    def on_object(self, *, obj: griffe.Object, **_more: Any) -> None:
        """Change one docstring when it has been read."""
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)
