"""What the doctor finds in a second, and what the watch has seen for longer."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca._admin.doctor.findings import Finding, Severity
from eruca._console.doctor.pages import is_refuted
from eruca._console.watching.samples import GroupSample, Sample, Still, Trend

STUCK = Finding(
    id="group-stuck",
    severity=Severity.CRITICAL,
    what="4 of 4 queues did not move within 1 s.",
    where="group billing",
    evidence={},
    advice="",
    command="",
)


def make_sample(
    seconds: float | None, trend: Trend, *, is_minimum: bool = False, outgoing: float | None = 0.4
) -> Sample:
    still = None
    if seconds is not None:
        still = Still(topic="orders", broker="broker-a", queue=0, seconds=seconds, is_minimum=is_minimum)
    group = GroupSample(group="billing", lag=40, outgoing=outgoing, still=still, trend=trend)
    return Sample(cluster="c", at=datetime.now(UTC), groups={"billing": group})


@pytest.mark.parametrize(
    ("sample", "refuted"),
    [
        (make_sample(12.0, Trend.FALLING_BEHIND), True),
        (make_sample(None, Trend.FALLING_BEHIND), True),
        (make_sample(90.0, Trend.STUCK), False),
        # What is known since a moment ago only does not tell.
        (make_sample(12.0, Trend.FALLING_BEHIND, is_minimum=True), False),
        (make_sample(None, Trend.FALLING_BEHIND, outgoing=None), False),
        (Sample(cluster="c", at=datetime.now(UTC)), False),
        (None, False),
    ],
)
def test_a_group_that_the_watch_sees_moving_is_not_stuck(sample: Sample | None, refuted: bool) -> None:
    assert is_refuted(STUCK, sample) is refuted


def test_other_findings_stay() -> None:
    other = Finding(
        id="group-differs",
        severity=Severity.CRITICAL,
        what="",
        where="group billing",
        evidence={},
        advice="",
        command="",
    )
    assert not is_refuted(other, make_sample(12.0, Trend.FALLING_BEHIND))
