"""The checklist of a release finds what is wrong; the charts say what was measured."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.paths import REPOSITORY
from tools import archives, charts, release
from tools.project import Section

ENTRIES = "### Added\n\n- Something new.\n"


def make_sections(*versions: str) -> list[Section]:
    """Sections of a changelog, newest first."""
    return [Section(version, None if version == "Unreleased" else "2026-11-19", ENTRIES) for version in versions]


@pytest.mark.parametrize(
    ("version", "sections", "said"),
    [
        ("0.2.0", make_sections("Unreleased", "0.1.0"), []),
        ("0.2.0", make_sections("0.2.0", "0.1.0"), []),
        ("0.2", make_sections("Unreleased"), ["MAJOR.MINOR.PATCH"]),
        ("0.2.0", [], ["has no section"]),
        ("0.3.0", make_sections("0.2.0", "0.1.0"), ["the newest section of CHANGELOG.md is 0.2.0"]),
        ("0.2.0", [Section("0.2.0", None, ENTRIES)], ["has no date"]),
        ("0.2.0", [Section("0.2.0", "yesterday", ENTRIES)], ["has no date"]),
        ("0.2.0", [Section("0.2.0", "2026-11-19", "")], ["has no entries"]),
        ("0.10.0", make_sections("Unreleased", "0.2.0", "0.9.0"), ["not ordered"]),
        ("0.11.0", make_sections("Unreleased", "0.10.0", "0.9.0"), []),
        ("0.1.0", make_sections("Unreleased", "0.1.0"), ["0.1.0 is released already"]),
    ],
)
def test_versions_follow_the_rule(version: str, sections: list[Section], said: list[str]) -> None:
    faults = release.check_version(version, sections)
    assert len(faults) == len(said), faults
    assert all(part in fault for part, fault in zip(said, faults, strict=True))


def test_addresses_of_nobody_are_found() -> None:
    urls = {"Source": "https://github.com/eruca/eruca", "Home": "https://eruca.example/", "Docs": "https://example.com"}
    faults = release.check_addresses(urls)
    assert [fault.split()[2] for fault in faults] == ["Home", "Docs"]


def test_a_version_needs_a_store_that_is_kept() -> None:
    assert release.check_store("0.1.0") == []
    (fault,) = release.check_store("99.0.0")
    assert "99.0.0.tar.gz is missing" in fault


def test_an_empty_folder_has_no_archives(tmp_path: Path) -> None:
    (fault,) = release.check_archives(tmp_path, "0.1.0")
    assert "run `make dist`" in fault


@pytest.mark.parametrize(
    ("name", "publish", "findings", "state"),
    [
        ("lint", False, [], "ok"),
        ("lint", False, ["wrong"], "failed"),
        ("publish", False, ["no tag"], "open"),
        ("publish", True, ["no tag"], "failed"),
        ("publish", True, [], "ok"),
    ],
)
def test_what_only_publication_needs_is_open_until_then(
    name: str, publish: bool, findings: list[str], state: str
) -> None:
    outcome = release.carry_out(name, lambda: findings, publish=publish)
    assert (outcome.step, outcome.state, outcome.findings) == (name, state, findings)


def test_a_command_that_fails_fails_its_step() -> None:
    def step() -> list[str]:
        raise release.StepError("`make lint` ended with status 2")

    outcome = release.carry_out("publish", step, publish=False)
    assert (outcome.state, outcome.findings) == ("failed", ["`make lint` ended with status 2"])


def test_the_page_has_the_steps_of_the_script() -> None:
    text = (REPOSITORY / "docs" / "RELEASING.md").read_text(encoding="utf-8")
    steps = list(release.make_steps("0.1.0", []))
    table = text.partition("| step | what is done and verified |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines()[2:]] == steps
    named = [words.split("`")[0] for words in text.split("release-check ONLY=")[1:]]
    assert named and set(named) <= set(steps)


# --- archives ---------------------------------------------------------------------------------------------------------


def test_everything_of_the_package_is_looked_for() -> None:
    """A wheel without the texts of the console would install, and fail when somebody opens a page."""
    listed = subprocess.run(
        ["git", "ls-files", "src"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {name.removeprefix("src/") for name in listed} <= archives.list_sources()


# --- charts -----------------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"
PEERS = [{"name": "Java's broker", "value": 50.0, "ratio": 2.0}, {"name": "a < b & c", "value": 25.0, "ratio": 4.0}]


def draw(*figures: dict[str, Any]) -> ElementTree.Element:
    """The chart of a document of `make bench`."""
    machine = {"cores": 2, "python": "3.13.1", "load_before": 0.1}
    document = {"bench": "broker", "time": "2026-11-19T12:00:00", "machine": machine, "figures": list(figures)}
    return ElementTree.fromstring(charts.draw(document))


def read_bars(chart: ElementTree.Element) -> list[float]:
    """How long the bars are; the first rectangle is the ground."""
    return [float(bar.attrib["width"]) for bar in chart.iter(f"{SVG}rect")][1:]


def read_texts(chart: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in chart.iter(f"{SVG}text")]


def test_bars_are_as_long_as_what_was_measured() -> None:
    chart = draw({"name": "sends", "unit": "1/s", "value": 100.0, "peers": PEERS})
    ours, *theirs = read_bars(chart)
    assert theirs == pytest.approx([ours / 2, ours / 4], abs=0.1)
    texts = read_texts(chart)
    assert texts[:2] == ["make bench ONLY=broker", "2026-11-19, 2 cores, Python 3.13.1, load before 0.1"]
    assert {"sends (1/s)", "Eruca", "Java's broker", "a < b & c"} <= set(texts)
    assert [text for text in texts if "ratio 2" in text or "ratio 4" in text] == texts[-3::2]


def test_what_nobody_is_compared_with_has_no_bar() -> None:
    alone = {"name": "sends", "unit": "1/s", "value": 100.0, "peers": []}
    assert read_bars(draw(alone)) == []
    assert "sends (1/s)" not in read_texts(draw(alone))


def test_nothing_at_all_can_be_drawn() -> None:
    chart = draw({"name": "losses", "unit": "messages", "value": 0.0, "peers": [{**PEERS[0], "value": 0.0}]})
    assert read_bars(chart) == [1.0, 1.0]
