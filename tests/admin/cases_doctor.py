"""What is wrong with a cluster, or with one group."""

from __future__ import annotations

import pytest

from eruca.admin import Limits, Severity
from eruca.errors import NoRoute
from tests.admin.stage import Stage, covers

_LIMITS = Limits(sample=0.1)


@covers("doctor.examine", "doctor.examine_group")
async def case_a_group_without_members(stage: Stage) -> None:
    """It is found in the whole cluster and when it is looked at alone, with what to do."""
    doctor, topic, group = stage.admin.doctor, await stage.create_topic(), stage.name("billing")
    await stage.send(topic, 5)
    await stage.raw.offsets.reset(group, topic, "earliest")
    examined = await doctor.examine(limits=_LIMITS)
    assert examined.looked_at["brokers"] == 1 and examined.looked_at["topics"] >= 1
    found = [finding for finding in examined.findings if finding.where == f"group {group}"]
    assert [finding.id for finding in found] == ["group-absent"] and found[0].advice
    assert not examined.is_healthy and found[0] in examined.at_least(Severity.WARNING)
    alone, shown = await doctor.examine_group(group, limits=_LIMITS)
    assert (shown.name, shown.lag) == (group, 5)
    assert {finding.id for finding in alone.findings if finding.where == f"group {group}"} == {"group-absent"}
    with pytest.raises(NoRoute, match="no broker knows a group"):
        await doctor.examine_group(stage.name("nobody"), limits=_LIMITS)
