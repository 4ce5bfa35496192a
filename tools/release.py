"""Carry out the release checklist of `docs/RELEASING.md` and verify each step: `make release-check`."""

from __future__ import annotations

import filecmp
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import click

from tools.archives import find_faults
from tools.dist import BuildError, build_plain_wheel, build_source
from tools.project import CHANGELOG, REPOSITORY, Section, read_changes, read_project, read_version

DIST: Final = REPOSITORY / "dist"
RELEASES: Final = REPOSITORY / "tests" / "golden" / "data" / "releases"
UNRELEASED: Final = "Unreleased"
# Domains that belong to nobody (RFC 2606): an address there is not one yet.
_RESERVED: Final = (".example", ".invalid", ".test", ".localhost", "example.com", "example.net", "example.org")
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")

State = Literal["ok", "failed", "open"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended."""

    step: str
    state: State
    findings: list[str]
    seconds: float


class StepError(Exception):
    """A command of a step failed."""


def check_version(version: str, sections: list[Section]) -> list[str]:
    """Compare the version with the rule, and with the changelog."""
    faults = [] if _VERSION.fullmatch(version) else [f"{version} is not MAJOR.MINOR.PATCH"]
    if not sections:
        return [*faults, "CHANGELOG.md has no section"]
    newest = sections[0]
    if newest.version not in {UNRELEASED, version}:
        faults.append(f"the newest section of CHANGELOG.md is {newest.version}, not {UNRELEASED} or {version}")
    released = [section for section in sections if section.version != UNRELEASED]
    for section in released:
        if section.date is None or not _is_date(section.date):
            faults.append(f"the section {section.version} of CHANGELOG.md has no date")
        if not section.entries:
            faults.append(f"the section {section.version} of CHANGELOG.md has no entries")
    numbers = [_sort_key(section.version) for section in released]
    if numbers != sorted(set(numbers), reverse=True):
        faults.append("the sections of CHANGELOG.md are not ordered by version, newest first")
    if newest.version == UNRELEASED and any(section.version == version for section in released):
        faults.append(f"{version} is released already: choose the next number")
    return faults


def check_publish(version: str, sections: list[Section]) -> list[str]:
    """Return what is missing before this commit can be published."""
    faults = []
    if _read("git", "status", "--porcelain"):
        faults.append("there are changes that are not committed")
    if not sections or sections[0].version != version:
        faults.append(f"CHANGELOG.md has no section {version} yet")
    if f"v{version}" not in _read("git", "tag", "--points-at", "HEAD").split():
        faults.append(f"HEAD has no tag v{version}")
    return faults + check_addresses(read_project()["project"]["urls"])


def check_addresses(urls: dict[str, str]) -> list[str]:
    """Return the addresses that lead nowhere."""
    return [
        f"the address {name} of pyproject.toml is not real yet: {url}"
        for name, url in urls.items()
        if (urlsplit(url).hostname or "").endswith(_RESERVED)
    ]


def check_again(dist: Path, version: str) -> list[str]:
    """Build the plain wheel again and compare it with the one in `dist`."""
    name = f"eruca-{version}-py3-none-any.whl"
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory)
        made = build_plain_wheel(build_source(target), target)
        same = (dist / name).exists() and filecmp.cmp(made, dist / name, shallow=False)
    return [] if same else [f"{name} has other bytes than a second build, or is missing: run `make dist`"]


def check_archives(dist: Path, version: str) -> list[str]:
    """Check every file in `dist`, and ask twine what the index would say."""
    files = sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")])
    if not any(path.name.endswith("-none-any.whl") for path in files) or len(files) < len(("source", "plain", "one")):
        return ["dist/ has no source archive, plain wheel and compiled wheel: run `make dist`"]
    faults = [f"{path.name}: {fault}" for path in files for fault in find_faults(path, version)]
    _run(str(Path(sys.executable).parent / "twine"), "check", "--strict", *map(str, files))
    return faults


def check_store(version: str) -> list[str]:
    """A store of this version is kept for the versions after it."""
    path = RELEASES / f"{version}.tar.gz"
    return [] if path.exists() else [f"{path.relative_to(REPOSITORY)} is missing: run `make release-store`"]


def check_unchanged(target: str) -> list[str]:
    """Run a target that writes files, and return those that it changed."""
    before = _read("git", "diff")
    _run("make", target)
    after = _read("git", "diff")
    return [] if after == before else [f"`make {target}` changed files: {_read('git', 'diff', '--name-only')}"]


def make_steps(version: str, sections: list[Section]) -> dict[str, Callable[[], list[str]]]:
    """Return the steps of the checklist in order."""
    return {
        "version": lambda: check_version(version, sections),
        "locks": lambda: check_unchanged("lock"),
        "pages": lambda: check_unchanged("generate") + _run("make", "docs"),
        "lint": lambda: _run("make", "lint"),
        "tests": lambda: _run("make", "test"),
        "dist": lambda: _run("make", "dist"),
        "archives": lambda: check_archives(DIST, version),
        "again": lambda: check_again(DIST, version),
        "shipping": lambda: _run("make", "test-shipping"),
        "store": lambda: check_store(version),
        "publish": lambda: check_publish(version, sections),
    }


def carry_out(name: str, step: Callable[[], list[str]], *, publish: bool) -> Outcome:
    """Run a step. What is only missing for the publication is open, not failed, until the publication."""
    begun = time.monotonic()
    try:
        findings = step()
        missing: State = "open" if name == "publish" and not publish else "failed"
    except (StepError, BuildError) as error:
        findings, missing = [str(error)], "failed"
    return Outcome(name, missing if findings else "ok", findings, round(time.monotonic() - begun, 1))


def _run(*command: str) -> list[str]:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise StepError(f"`{' '.join(command[:2])}` ended with status {done.returncode}:\n{said}")
    return []


def _read(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _sort_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


@click.command()
@click.option("--only", "names", multiple=True, help="Carry out this step only; may be repeated.")
@click.option("--publish", is_flag=True, help="Take what is open for a failure.")
def main(names: tuple[str, ...], publish: bool) -> None:
    """Carry out the release checklist, one line per step."""
    version = read_version()
    steps = make_steps(version, read_changes(CHANGELOG.read_text(encoding="utf-8")))
    if unknown := set(names) - steps.keys():
        raise click.UsageError(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(steps)}")
    outcomes = []
    for name, step in steps.items():
        if names and name not in names:
            continue
        outcomes.append(outcome := carry_out(name, step, publish=publish))
        click.echo(f"{outcome.state:<7} {name:<9} {outcome.seconds:7.1f} s")
        for finding in outcome.findings:
            click.echo("        " + finding.replace("\n", "\n        "))
    DIST.mkdir(exist_ok=True)
    report = {"version": version, "commit": _read("git", "rev-parse", "HEAD"), "steps": [asdict(o) for o in outcomes]}
    (DIST / "release-check.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if any(outcome.state == "failed" for outcome in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
