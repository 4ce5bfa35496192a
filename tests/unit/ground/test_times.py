"""Points in time: with a time zone, exact to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from eruca._ground.times import from_epoch_ms, to_epoch_ms
from eruca.errors import ConfigError


@pytest.mark.parametrize("time_ms", [0, 1, 1_700_000_000_123, -62_135_596_800_000, 253_402_300_799_999])
def test_there_and_back(time_ms: int) -> None:
    time = from_epoch_ms(time_ms)
    assert time is not None and time.tzinfo is UTC
    assert to_epoch_ms("time", time) == time_ms


def test_zones_count() -> None:
    east = timezone(timedelta(hours=8))
    assert to_epoch_ms("time", datetime(1970, 1, 1, 8, tzinfo=east)) == 0


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63), 253_402_300_800_000])
def test_what_no_calendar_has(time_ms: int) -> None:
    assert from_epoch_ms(time_ms) is None


@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), 1_700_000_000_000, "2026-01-01", None])
def test_anything_else_is_refused_with_the_name_of_the_argument(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="since="):
        to_epoch_ms("since", wrong)
