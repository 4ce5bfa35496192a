"""The image, built by Buildah from a Debian made of packages by name, and containers of Podman.

No image registry is needed: the base is what mmdebstrap makes, kept in the user's cache folder. How pip finds packages
on this machine is passed on as a file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.needs import expect_need
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.shipping.programs import find_cache

BASE: Final = "localhost/debian-with-nothing"
IMAGE: Final = "localhost/eruca-tested"
SUITE: Final = "bookworm"
# Limits are those of this machine, which may not allow to raise them or to make groups of processes.
LIMITS: Final = ("--cgroups=disabled", "--ulimit=host")
_BUILD_SECONDS_MAX: Final = 1800


class Store:
    """Images and containers of the tests, apart from those of the user."""

    def __init__(self, folder: Path) -> None:
        self._places = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"))
        folder.mkdir(parents=True, exist_ok=True)

    def buildah(self, *arguments: str) -> str:
        """Run Buildah; it has to succeed."""
        return self._run("buildah", *arguments)

    def podman(self, *arguments: str) -> str:
        """Run Podman; it has to succeed."""
        return self._run("podman", "--cgroup-manager=cgroupfs", "--events-backend=none", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        expect_need("containers")
        done = subprocess.run(
            [program, *self._places, *arguments],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{program} {' '.join(arguments)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout.strip()

    def build_base(self) -> None:
        """Make the image of a Debian that has nothing but the package manager."""
        archive = find_cache() / f"debian-{SUITE}.tar"
        if not archive.exists():
            expect_need("containers")
            made = archive.with_suffix(f".{os.getpid()}")
            archive.parent.mkdir(parents=True, exist_ok=True)
            command = ["mmdebstrap", "--variant=apt", "--format=tar", SUITE, str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=_BUILD_SECONDS_MAX)
            made.rename(archive)
        container = self.buildah("from", "scratch")
        self.buildah("add", container, str(archive), "/")
        self.buildah("commit", "--rm", "--quiet", container, BASE)

    def build(self, folder: Path) -> None:
        """Build the image from the Containerfile."""
        mounts = [f"--volume={source}:{target}:ro" for source, target in pass_pip_on(folder).items()]
        self.buildah(
            *("bud", "--format=docker", "--isolation=chroot", "--network=host", "--pull-never", *mounts),
            *("--file=deploy/image/Containerfile", f"--build-arg=BASE={BASE}", f"--tag={IMAGE}", "."),
        )

    @contextmanager
    def run(self, name: str, *arguments: str) -> Iterator[str]:
        """Run a container, and remove it at the end."""
        self.podman("run", *LIMITS, "--detach", f"--name={name}", *arguments)
        try:
            yield name
        finally:
            self.podman("rm", "--force", "--time=1", name)

    def read_state(self, name: str) -> dict[str, object]:
        """What Podman knows about a container."""
        state: dict[str, object] = json.loads(self.podman("inspect", "--format={{json .State}}", name))
        return state


def pass_pip_on(folder: Path) -> dict[str, str]:
    """Write how pip finds packages here; returns what is mounted where."""
    lines = ["[global]"]
    mounts = {}
    for name, text in sorted(os.environ.items()):
        if not name.startswith("PIP_"):
            continue
        value = text
        if text.startswith("/") and Path(text).exists():
            # A file of certificates or a folder of packages.
            value = f"/run/pip/{name.lower()}"
            mounts[os.path.realpath(text)] = value
        lines.append(f"{name.removeprefix('PIP_').lower().replace('_', '-')} = {value}")
    configuration = folder / "pip.conf"
    configuration.write_text("\n".join(lines) + "\n")
    return {**mounts, str(configuration): "/etc/pip.conf"}


def remove(folder: Path) -> None:
    """Remove a store: its layers may be mounted."""
    command = ["umount", str(folder / "storage" / "overlay")]
    subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)
