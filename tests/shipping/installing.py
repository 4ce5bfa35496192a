"""Empty environments without a compiler, into which wheels are installed as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.patience import PATIENCE_S
from tests.shipping.programs import find_cache

_COMPILERS: Final = re.compile(r"(.*-)?(g?cc|c\+\+|g\+\+|cpp|clang|clang\+\+|c89|c99|tcc|ld|as)(-[\d.]+)?")
_INSTALL_SECONDS_MAX: Final = 1500


@dataclass(frozen=True)
class Installed:
    """An environment, and a folder outside of the checkout to work in."""

    home: Path
    folder: Path
    # Where its commands are, and all those of the system but compilers.
    path: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make_environment(self) -> dict[str, str]:
        """The variables of a process in it: nothing of the checkout, and nothing of ours."""
        return {**keep_environment(), "PATH": self.path, "HOME": str(self.home)}

    def run(
        self, *command: str, seconds: float = PATIENCE_S, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in its folder; it has to succeed."""
        program = self.folder / "bin" / command[0]
        done = subprocess.run(
            [str(program), *command[1:]],
            cwd=self.home,
            env={**self.make_environment(), **(variables or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    def install(self, *wanted: str) -> None:
        """Install packages as a user does. What has no wheel is built: it must not need a compiler."""
        self.run("python", "-m", "pip", "install", "--quiet", *wanted, seconds=_INSTALL_SECONDS_MAX)


def keep_environment() -> dict[str, str]:
    """The variables of this process but those of the checkout; what pip downloads is kept for the next run."""
    left_out = ("ERUCA_", "NAMESRV", "PYTHON", "VIRTUAL_ENV", "SPARK_", "PYSPARK_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "PIP_CACHE_DIR": str(find_cache() / "pip")}


def make_installed(folder: Path, *wanted: str, python: str = sys.executable) -> Installed:
    """Make an environment with some packages in it."""
    home = folder / "home"
    home.mkdir(parents=True)
    environment = folder / "env"
    if python == sys.executable:
        venv.create(environment, with_pip=True)
    else:
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
    tools = list_tools(folder / "tools", os.environ["PATH"].split(os.pathsep))
    installed = Installed(home, environment, f"{environment / 'bin'}{os.pathsep}{tools}")
    installed.install(*wanted)
    return installed


def list_tools(folder: Path, places: Sequence[str]) -> Path:
    """Make a folder with links to all commands of the system but compilers and Python."""
    folder.mkdir()
    for place in places:
        for command in sorted(Path(place).glob("*")) if Path(place).is_dir() else []:
            link = folder / command.name
            is_wanted = not _COMPILERS.fullmatch(command.name) and not command.name.startswith(("python", "pip"))
            if is_wanted and not link.is_symlink() and ".venv" not in command.parts:
                link.symlink_to(command)
    return folder


def name_wheel(wheel: Path, *extras: str) -> str:
    """A wheel as pip takes it, with extras."""
    return f"eruca[{','.join(extras)}] @ {wheel.as_uri()}" if extras else str(wheel)
