"""Numbers in few characters."""

from __future__ import annotations

import pytest

from eruca._cli.topview.figures import show_count, show_rate, show_share, show_span


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0"), (99_999, "99,999"), (100_000, "100k"), (1_234_567, "1.23M"), (12_345_678_901, "12.3G")],
)
def test_counts(count: int | None, text: str) -> None:
    assert show_count(count) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "-"), (0.0, "0"), (0.04, "0"), (0.3, "0.3"), (9.96, "10"), (1234.4, "1,234"), (250_000.0, "250k")],
)
def test_rates(rate: float | None, text: str) -> None:
    assert show_rate(rate) == text


def test_changes_have_a_sign() -> None:
    assert [show_rate(rate, signed=True) for rate in (0.0, 0.01, 12.0, -0.04, -3.5)] == ["0", "0", "+12", "0", "-3.5"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0s"),
        (0.44, "0.4s"),
        (59.4, "59s"),
        (125, "2m05s"),
        (12_000, "3h20m"),
        (1_051_200, "12d4h"),
        (1e10, "115740d"),
    ],
)
def test_spans(seconds: float | None, text: str) -> None:
    assert show_span(seconds) == text


def test_shares() -> None:
    assert [show_share(ratio) for ratio in (None, -1.0, 0.0, 0.756)] == ["-", "-", "0%", "76%"]
