"""Messages with a time of delivery: when they are due, and what a broker refuses."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eruca._broker.sending.mapping import find_due_time
from eruca._wire.properties import TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, encode_properties
from eruca.errors import RequestRefused

NOW_MS = 1_700_000_000_000
MAX_MS = round(timedelta(days=40).total_seconds() * 1000)


@pytest.mark.parametrize(
    ("name", "longest"),
    [(TIMER_DELAY_MS, MAX_MS), (TIMER_DELAY_SEC, MAX_MS // 1000), (TIMER_DELIVER_MS, NOW_MS + MAX_MS)],
)
def test_a_delay_above_the_maximum_is_refused(name: str, longest: int) -> None:
    """Our clients refuse it themselves; others do not."""
    assert find_due_time(encode_properties({name: str(longest)}), NOW_MS, MAX_MS) == NOW_MS + MAX_MS
    with pytest.raises(RequestRefused, match="should not be bigger than the max delay"):
        find_due_time(encode_properties({name: str(longest + 1)}), NOW_MS, MAX_MS)
