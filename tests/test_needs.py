"""How a run treats tests whose tools are missing, and what it says at its end; alone and with several workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import REPOSITORY

pytest_plugins = ["pytester"]

SAMPLE = """
    import pytest

    from tests.figures import note_figures
    from tests.needs import expect_need, needs, starts


    @pytest.fixture
    @starts("go")
    def program():
        expect_need("go")


    @pytest.fixture
    def stage(program):
        return program


    @needs("java", "etcd")
    def test_marked():
        raise AssertionError


    def test_through_a_fixture(stage):
        raise AssertionError


    @pytest.mark.parametrize("system", ["eruca", "java"])
    def test_system(system):
        note_figures(f"on {system}: 42 messages")
        assert system == "eruca"


    def test_says_nothing_of_what_it_starts():
        expect_need("node")


    @needs("node")
    def test_chosen_away():
        raise AssertionError
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_left_out_is_said_last(
    workers: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytester.makeconftest("from tests.conftest import *")
    pytester.makeini("[pytest]\nmarkers = needs: tools")
    pytester.makepyfile(SAMPLE)
    monkeypatch.setenv("PATH", str(tmp_path))  # no tools here
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    options = ["-q", "-n", workers, "-k", "not chosen_away"]
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(passed=1, failed=1, deselected=4 if workers == "0" else 0)
    said = [line for line in result.outlines if line]
    assert said[-1] == "left out: 3 tests; 2 need Java 17 and Maven, 1 needs etcd, 1 needs Go"
    assert [line for line in said if line.startswith("on ")] == ["on eruca: 42 messages"]
    assert any('is marked needs("node")' in line for line in said)
