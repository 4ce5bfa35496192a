"""Programs beside Python that some tests start: the one list of them, for the tests and for the Makefile.

`python tests/tools.py java go` prints the Debian packages that bring what is missing, in one line.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Tool:
    """What a test can need from the system."""

    # As it is named where tests are left out for want of it.
    name: str
    # The Debian package that brings each command.
    packages: Mapping[str, str]
    # The oldest version that will do, as `command -version` tells it.
    oldest: int = 0
    # The Debian package that brings each file, of what has no command.
    files: Mapping[str, str] = field(default_factory=dict)


TOOLS = {
    "java": Tool("Java 17 and Maven", {"javac": "openjdk-17-jdk-headless", "mvn": "maven"}, oldest=17),
    "jre": Tool("Java 17", {"java": "openjdk-17-jre-headless"}, oldest=17),
    "go": Tool("Go", {"go": "golang-go"}),
    "node": Tool("Node and npm", {"node": "nodejs", "npm": "npm"}),
    # Older ones than the crates ask for are not recognised; Debian's may be one.
    "rust": Tool("Rust", {"cargo": "cargo"}),
    "chromium": Tool("Chromium", {"chromium": "chromium"}),
    # Pictures of pages look the same on each machine, and Chinese is not boxes.
    "fonts": Tool(
        "Noto fonts",
        {},
        files={
            "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf": "fonts-noto-core",
            "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc": "fonts-noto-cjk",
        },
    ),
    "etcd": Tool("etcd", {"etcd": "etcd-server"}),
    "containers": Tool("Buildah, Podman", {"buildah": "buildah", "podman": "podman", "mmdebstrap": "mmdebstrap"}),
    "systemd": Tool("systemd", {"systemd-analyze": "systemd"}),
    "prometheus": Tool("Prometheus", {"prometheus": "prometheus", "promtool": "prometheus"}),
}


@cache
def list_missing(tool: str) -> tuple[str, ...]:
    """The Debian packages that bring what is missing of a tool; none when all of it is there."""
    wanted = TOOLS[tool]
    missing = [package for command, package in wanted.packages.items() if shutil.which(command) is None]
    missing += [package for file, package in wanted.files.items() if not Path(file).exists()]
    if not missing and wanted.oldest and _read_version(next(iter(wanted.packages))) < wanted.oldest:
        missing = list(wanted.packages.values())[:1]
    return tuple(missing)


def _read_version(command: str) -> int:
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+", done.stdout + done.stderr)
    return int(found[0]) if found else 0


def main(tools: Iterable[str]) -> None:
    """Print the packages."""
    print(*(package for tool in tools for package in list_missing(tool)))


if __name__ == "__main__":
    main(sys.argv[1:])
