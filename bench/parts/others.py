"""The environment of the other Python clients: created from a separate lock file and never mixed with ours."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.runner import BenchError
from tests.paths import REPOSITORY

LOCK = REPOSITORY / "requirements" / "bench.txt"
# Inside ours, so that ignoring or removing that one includes this.
ENVIRONMENT = REPOSITORY / ".venv" / "others"
_SECONDS_MAX = 300
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")


def read_lock() -> dict[str, str]:
    """The lock as text by package: each starts at the beginning of a line and continues indented."""
    blocks: dict[str, str] = {}
    name = ""
    for line in LOCK.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("#"):
            continue
        if not line[0].isspace():
            name = line.partition("==")[0]
            blocks[name] = ""
        blocks[name] += line
    return blocks


def find_version(package: str) -> str:
    """The locked version of a package."""
    return read_lock()[package].split()[0].partition("==")[2]


def install(packages: tuple[str, ...]) -> Path:
    """Install locked packages unless an earlier run did; returns the Python that has them.

    Each client is installed separately, because one that fails must not affect the others.
    """
    python = ENVIRONMENT / "bin" / "python"
    blocks = read_lock()
    wanted = "".join(blocks[package] for package in packages)
    stamp = ENVIRONMENT / f".{packages[0]}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
    if stamp.is_file():
        return python
    if not python.is_file():
        _run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(wanted)
        file.flush()
        _run([str(python), *_PIP, "-r", file.name])
    stamp.touch()
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(str(error)) from error
    if done.returncode:
        raise BenchError(find_reason(done.stdout + done.stderr) or f"{command[1:4]} ended with {done.returncode}")


def find_reason(printed: str) -> str:
    """The line with the reason of a failure: pip's first ERROR, otherwise a traceback's or a crash's last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines[-1:] or [""])[0][:300]
