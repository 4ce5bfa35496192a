"""Tables: filter, order, pages, exports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca._console.pages.tables import write_cell


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        (3, "3"),
        (-3, "-3"),
        ("plain", "plain"),
        ("=1+1", "'=1+1"),
        ("+49", "'+49"),
        ("@cmd", "'@cmd"),
        ("-x", "'-x"),
        (["a", "b"], "a b"),
        (["=1", "2"], "'=1 2"),
        (timedelta(seconds=90), "90.0"),
        (datetime(2026, 11, 15, tzinfo=UTC), "2026-11-15T00:00:00+00:00"),
    ],
)
def test_cells_of_a_spreadsheet_are_no_formulas(value: object, cell: str) -> None:
    assert write_cell(value) == cell
