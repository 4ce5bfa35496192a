"""What is wrong with a source archive or a wheel: what is missing, what should not be there, what its metadata says."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from tools.project import REPOSITORY, read_project

_RELATIVE_LINK: Final = re.compile(r"\]\((?!https?:|#)[^)]+\)")
_WHEEL_NAME: Final = re.compile(r"eruca-(?P<version>[^-]+)-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl")
# What nobody needs to install or to build: it got in by mistake.
_UNWANTED: Final = re.compile(r"(^|/)(tests|\.git|\.venv|build|dist|requirements)/|\.(c|pyc|log|tar\.gz)$")
_SOURCE_MUST: Final = (
    *("setup.py", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "NOTICE"),
    *("docs/ARCHITECTURE.md", "docs/guide/clients.md", "deploy/prometheus/rules.yml", "examples/plain.py", "PKG-INFO"),
)


@dataclass(frozen=True)
class Archive:
    """The files of an archive, by path."""

    files: dict[str, bytes]

    @cached_property
    def names(self) -> set[str]:
        return set(self.files)

    def find(self, ending: str) -> bytes:
        """Return the only file whose path ends like this; nothing when there is none."""
        return next((data for path, data in self.files.items() if path.endswith(ending)), b"")


def find_faults(path: Path, version: str) -> list[str]:
    """Return what is wrong with a file that `make dist` built."""
    if path.name.endswith(".tar.gz"):
        return list(_check_source(path, version))
    return list(_check_wheel(path, version))


def read_archive(path: Path) -> Archive:
    """Read a wheel or a source archive; the folder that a source archive has at its top is left out."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return Archive({name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")})
    files = {}
    with tarfile.open(path) as source:
        for member in source:
            if member.isfile() and (reader := source.extractfile(member)) is not None:
                files[str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))] = reader.read()
    return Archive(files)


def list_kernels(files: Iterable[str]) -> set[str]:
    """The modules that are compiled, without ending: `eruca/_wire/kernel/digest`."""
    return {
        path.removesuffix(".py")
        for path in files
        if "/kernel/" in path and path.endswith(".py") and b"import cython" in (REPOSITORY / "src" / path).read_bytes()
    }


def list_sources() -> set[str]:
    """What the package consists of, by its path below src."""
    kept = {".py", ".pxd", ".typed", ".html", ".css", ".js", ".svg", ".lark", ".json"}
    root = REPOSITORY / "src"
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.suffix in kept and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }


def _check_source(path: Path, version: str) -> Iterator[str]:
    if path.name != f"eruca-{version}.tar.gz":
        yield f"the name is not that of version {version}"
    archive = read_archive(path)
    wanted = {f"src/{name}" for name in list_sources()} | set(_SOURCE_MUST)
    yield from (f"{name} is missing" for name in sorted(wanted - archive.names))
    yield from (f"{name} does not belong here" for name in sorted(filter(_UNWANTED.search, archive.names)))
    yield from (f"{name} is compiled" for name in sorted(archive.names) if name.endswith(".so"))
    yield from _check_metadata(archive.files.get("PKG-INFO", b""), version)


def _check_wheel(path: Path, version: str) -> Iterator[str]:
    named = _WHEEL_NAME.fullmatch(path.name)
    if named is None or named["version"] != version:
        yield f"the name is not that of a wheel of version {version}"
        return
    archive = read_archive(path)
    yield from (f"{name} is missing" for name in sorted(list_sources() - archive.names))
    yield from (f"{name} does not belong here" for name in sorted(filter(_UNWANTED.search, archive.names)))
    compiled = {name.partition(".")[0] for name in archive.names if name.endswith(".so")}
    if named["platform"] == "any":
        if (named["python"], named["abi"]) != ("py3", "none"):
            yield "a plain wheel is for every Python 3"
        yield from (f"{name} is compiled in a plain wheel" for name in sorted(compiled))
    else:
        if "manylinux" not in named["platform"]:
            yield f"{named['platform']} is not a platform that an index accepts"
        yield from (f"{name} is not compiled" for name in sorted(list_kernels(list_sources()) - compiled))
        yield from (f"{name} is a library of this machine" for name in sorted(archive.names) if ".libs/" in name)
    yield from (f"the licence {name} is missing" for name in ("LICENSE", "NOTICE") if not archive.find(f"/{name}"))
    yield from _check_entry_points(archive.find(".dist-info/entry_points.txt").decode())
    yield from _check_metadata(archive.find(".dist-info/METADATA"), version)


def _check_entry_points(text: str) -> Iterator[str]:
    project = read_project()["project"]
    for group in (project["scripts"], *project["entry-points"].values()):
        for name, target in group.items():
            if f"{name} = {target}" not in text.splitlines():
                yield f"the entry point {name} = {target} is missing"


def _check_metadata(data: bytes, version: str) -> Iterator[str]:
    said: Message = HeaderParser().parsestr(data.decode())
    project = read_project()["project"]
    if said["Version"] != version:
        yield f"the metadata has version {said['Version']}"
    if said["Requires-Python"] != project["requires-python"]:
        yield f"the metadata requires Python {said['Requires-Python']}"
    if set(said.get_all("Provides-Extra", [])) != set(project["optional-dependencies"]):
        yield "the extras are not those of pyproject.toml"
    urls = dict(line.split(", ", 1) for line in said.get_all("Project-URL", []))
    if urls != project["urls"]:
        yield "the addresses are not those of pyproject.toml"
    body = str(said.get_payload())
    if not body.lstrip().startswith("# "):
        yield "there is no description"
    yield from (f"a link of the description leads nowhere: {link}" for link in _RELATIVE_LINK.findall(body))
