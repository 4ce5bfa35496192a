"""The list of groups in the API."""

from __future__ import annotations

from markupsafe import Markup

from eruca._admin.plain import to_plain
from eruca._console.groups.listing import COLUMNS, GroupRow
from eruca._console.watching.samples import Trend


def make_row(spark: Markup | None = None) -> GroupRow:
    return GroupRow(
        group="billing",
        state=Trend.STUCK,
        lag=3,
        lag_time=None,
        incoming=None,
        outgoing=None,
        behind=1,
        queues=2,
        topics=["orders"],
        spark=spark,
    )


def test_a_row_of_the_list_of_groups_is_plain() -> None:
    found = to_plain(make_row())
    assert (found["group"], found["state"], found["lag"]) == ("billing", "stuck", 3)
    assert "spark" not in found


def test_a_page_has_the_line_of_the_last_hour() -> None:
    drawn = Markup("<svg></svg>")
    assert [column.value(make_row(drawn)) for column in COLUMNS if column.kind == "html"] == [drawn]
