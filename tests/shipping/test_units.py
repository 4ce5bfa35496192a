"""The systemd units pass systemd's own checks, and start what exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eruca._cli.optionlist import Role, options_of
from tests.needs import needs
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.torture.killedbroker import make_environment

UNITS = sorted((REPOSITORY / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/eruca/bin/eruca"
# Of 10; 2 is what systemd calls OK, and a server needs the network.
EXPOSURE_MAX = 1.5
ROLES = {"broker": Role.BROKER, "nameserver": Role.NAMESERVER}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The units, with a program that is there on every machine: systemd looks for it."""
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text(encoding="utf-8").replace(PROGRAM, sys.executable))
    return tmp_path


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *arguments, *(f"./{unit.name}" for unit in UNITS)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def run_ours(*arguments: str) -> str:
    command = [sys.executable, "-m", "eruca", *arguments]
    done = subprocess.run(
        command, env=make_environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return done.stdout


@needs("systemd")
def test_systemd_finds_nothing_wrong(folder: Path) -> None:
    done = analyze(folder, "verify", "--man=no")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs("systemd")
def test_a_fault_is_found(folder: Path) -> None:
    unit = folder / UNITS[0].name
    unit.write_text(unit.read_text().replace("[Service]", "[Service]\nProtectEverything=yes"))
    assert "ProtectEverything" in analyze(folder, "verify", "--man=no").stderr


@needs("systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_exposure(unit: Path, folder: Path) -> None:
    done = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            f"--threshold={EXPOSURE_MAX * 10:.0f}",
            "--no-pager",
            f"./{unit.name}",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found and float(found[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_of_a_unit_starts_a_server(unit: Path, tmp_path: Path) -> None:
    """With the configuration that the comment of the unit says, and only the options printed."""
    (line,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    program, kind, *arguments = shlex.split(line)
    assert program == PROGRAM
    conf = tmp_path / "conf"
    run_ours("init", str(conf), "--host", "10.0.0.5")
    words = [word.replace("/etc/eruca", str(conf)).replace("/var/lib/eruca", str(tmp_path)) for word in arguments]
    assert '"aclEnable"' in run_ours(kind, *words, "-p", "-o", "json")
    options = [match[1] for word in arguments if (match := re.match(r"([\w.]+)=", word))]
    assert options and set(options) <= options_of(ROLES[kind]).keys()


def test_every_unit_is_there() -> None:
    assert {unit.stem for unit in UNITS} == {f"eruca-{kind}" for kind in ROLES}
