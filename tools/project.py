"""What the repository says about itself: version, extras, Pythons, changes."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
CHANGELOG: Final = REPOSITORY / "CHANGELOG.md"
_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_PYTHON: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_SECTION: Final = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """The changes of one version."""

    version: str
    date: str | None
    text: str

    @property
    def entries(self) -> list[str]:
        """The changes, one line each."""
        return [line for line in self.text.splitlines() if line.startswith("- ")]


def read_project() -> dict[str, Any]:
    """Read pyproject.toml."""
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def read_version() -> str:
    """Return the version of this checkout."""
    found = _VERSION.search((REPOSITORY / "src" / "eruca" / "__init__.py").read_text(encoding="utf-8"))
    assert found, "src/eruca/__init__.py has no __version__"
    return found[1]


def read_interpreters() -> list[str]:
    """Return the versions of Python that the package claims to support."""
    return [match[1] for line in read_project()["project"]["classifiers"] if (match := _PYTHON.fullmatch(line))]


def read_changes(text: str) -> list[Section]:
    """Split a changelog into its versions, the newest first."""
    found = list(_SECTION.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [
        Section(match["name"], match["date"], text[match.end() : end].strip())
        for match, end in zip(found, ends, strict=True)
    ]
