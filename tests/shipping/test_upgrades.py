"""Stores of earlier releases: this version opens them, and they open what this version has written."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.figures import note_figures
from tests.paths import REPOSITORY, unpack
from tests.patience import PATIENCE_S
from tests.torture.killedbroker import make_environment
from tools.project import read_version
from tools.releasestore import (
    DEAD,
    GROUP,
    NO_CONSOLE,
    OURS,
    PENDING,
    RELEASES,
    TOPIC,
    Stored,
    make_body,
    read_all,
    run_up,
    send_orders,
)

ARCHIVES = sorted(RELEASES.glob("*.tar.gz"))
MORE = 50
# Flags that every release has: old messages do not expire.
KEEP = ("--option=diskMaxUsedSpaceRatio=95", "--option=fileReservedTime=1000000")


class Release:
    """A kept store, unpacked, and the code that wrote it."""

    def __init__(self, archive: Path, folder: Path) -> None:
        unpack(archive, folder)
        self.data = folder / "data"
        self.folder = folder
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        self.messages = [(t, q, o, k, d) for t, q, o, k, d in self.manifest["messages"]]

    def unpack_code(self) -> dict[str, str]:
        """Unpack the code of the release; returns the variables of a process that runs it."""
        source = self.folder / "code"
        source.mkdir()
        command = ["git", "-C", str(REPOSITORY), "archive", self.manifest["commit"], "src", "tools"]
        packed = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S).stdout
        subprocess.run(["tar", "-x", "-C", str(source)], input=packed, check=True, timeout=PATIENCE_S)
        return {**make_environment(), "PYTHONPATH": os.pathsep.join((str(source / "src"), str(source)))}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Release:
    """Each kept release."""
    return Release(request.param, tmp_path)


def run_ours(*arguments: str) -> str:
    """Run a command of this version."""
    done = subprocess.run(
        [*OURS, *arguments], env=make_environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_ours(*arguments, "-o", "json").splitlines()]


def make_stored(numbers: range, before: Sequence[Stored]) -> set[tuple[str, str]]:
    """What is stored in the end, wherever: keys and bodies."""
    sent = {(f"order-{number}", _digest(number)) for number in numbers}
    return {(key, digest) for _topic, _queue, _offset, key, digest in before} | sent


def _digest(number: int) -> str:
    return hashlib.sha256(make_body(number)).hexdigest()[:16]


def test_this_version_is_kept() -> None:
    assert f"{read_version()}.tar.gz" in [path.name for path in ARCHIVES]


def test_a_store_of_a_release_opens(release: Release) -> None:
    first = len([message for message in release.messages if message[0] == TOPIC])
    with run_up(release.data, OURS, make_environment(), NO_CONSOLE, *KEEP) as facts:
        names = facts["nameserver"]
        assert read_all(names, TOPIC, DEAD) == release.messages
        (row,) = read_rows("message", "find", TOPIC, "--key", f"order-{first - 1}", "-n", names)
        assert row["topic"] == TOPIC
        # What was pending is pending, and the group continues where it was.
        assert [row for row in list_pending(names) if "pending-1" in row["keys"]]
        (half,) = read_rows("txn", "list", "-n", names)
        assert (half["topic"], half["producer_group"]) == (PENDING, "undecided")
        assert "dead-1" in run_ours("dlq", "list", "mailer", "-n", names, "-o", "json")
        (lag,) = read_rows("lag", GROUP, "--topic", TOPIC, "-n", names)
        assert lag["lag"] == first - release.manifest["consumed"]
        send_orders(names, first, MORE)
        found = read_all(names, TOPIC, DEAD)
    written = make_stored(range(first, first + MORE), release.messages)
    assert {(key, digest) for *_place, key, digest in found} == written
    run_ours("store", "verify", str(release.data / "store"))
    note_figures(f"store of {release.manifest['version']}: {len(release.messages)} messages read, {MORE} more written")


def list_pending(nameserver: str) -> list[dict[str, Any]]:
    """What waits for its time; 39 days after the archive was made it is where it belongs instead."""
    waiting = read_rows("delayed", "list", "-n", nameserver)
    done = subprocess.run(
        [*OURS, "message", "find", PENDING, "--key", "pending-1", "-n", nameserver, "-o", "json"],
        env=make_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return [*waiting, *map(json.loads, done.stdout.splitlines())]


def test_the_release_opens_what_this_version_has_written(release: Release) -> None:
    first = len([message for message in release.messages if message[0] == TOPIC])
    with run_up(release.data, OURS, make_environment(), NO_CONSOLE, *KEEP) as facts:
        send_orders(facts["nameserver"], first, MORE)
    older = release.unpack_code()
    with run_up(release.data, OURS, older, *KEEP) as facts:
        names = facts["nameserver"]
        # A client of this version, and one of the release.
        mine = read_all(names, TOPIC, DEAD)
        theirs = subprocess.run(
            [sys.executable, "-c", _READ, names, TOPIC, DEAD],
            env=older,
            cwd=release.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert theirs.returncode == 0, theirs.stderr
        assert [tuple(row) for row in json.loads(theirs.stdout)] == mine
        send_orders(names, first + MORE, MORE)
    with run_up(release.data, OURS, make_environment(), NO_CONSOLE, *KEEP) as facts:
        found = read_all(facts["nameserver"], TOPIC, DEAD)
    assert len(found) == len(release.messages) + 2 * MORE
    written = make_stored(range(first, first + 2 * MORE), release.messages)
    assert {(key, digest) for *_place, key, digest in found} == written
    note_figures(f"{release.manifest['version']} read {len(mine)} messages of {read_version()} and wrote {MORE} more")


_READ = """
import json, sys
from tools.releasestore import read_all
print(json.dumps(read_all(*sys.argv[1:])))
"""
