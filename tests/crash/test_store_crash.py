"""A slice of every crash scenario; `make torture ONLY=store` runs them whole."""

from __future__ import annotations

import pytest

from tests.crash.scenarios import SCENARIOS, SLICE_CASES


@pytest.mark.parametrize("name", SCENARIOS)
def test_store_survives(name: str) -> None:
    scenario = SCENARIOS[name]
    for case in scenario.pick_slice(SLICE_CASES):
        try:
            scenario.run(case)
        except Exception as error:
            pytest.fail(f"{name}: {scenario.describe(case)}: {error!r}\nreplay: {scenario.name_replay(case)}")
