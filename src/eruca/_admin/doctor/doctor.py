"""`admin.doctor`: looks at a cluster and reports what is wrong with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from eruca._admin.doctor.checks import find_all
from eruca._admin.doctor.collecting import Collecting
from eruca._admin.doctor.findings import Examination, Limits, Rules
from eruca._admin.doctor.picture import Picture
from eruca._admin.groups import Group

if TYPE_CHECKING:
    from eruca._admin.admin import Admin

# What is used unless the caller passes other ones.
USUAL_RULES: Final = Rules()
USUAL_LIMITS: Final = Limits()


class Doctor:
    """Looks at a cluster and reports what is wrong with it: `admin.doctor`."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def examine(self, *, rules: Rules = USUAL_RULES, limits: Limits = USUAL_LIMITS) -> Examination:
        """Look at the cluster and return what is wrong, how bad it is, and what to do. Changes nothing.

        Offsets of groups are read twice, `limits.sample` seconds apart. What was not looked at is in `left_out`.
        """
        begun = time.monotonic()
        return _examine(await Collecting(self._admin, limits).collect(), begun, rules, limits)

    async def examine_group(
        self, group: str, *, rules: Rules = USUAL_RULES, limits: Limits = USUAL_LIMITS
    ) -> tuple[Examination, Group]:
        """Look at one group only, and return it too: why is it behind? Raises NoRoute if no broker knows it."""
        begun = time.monotonic()
        picture, found = await Collecting(self._admin, limits).collect_group(group)
        return _examine(picture, begun, rules, limits), found


def _examine(picture: Picture, begun: float, rules: Rules, limits: Limits) -> Examination:
    findings, more = find_all(picture, rules, limits)
    return Examination(
        at=picture.at,
        seconds=round(time.monotonic() - begun, 3),
        looked_at=count_parts(picture),
        findings=findings,
        left_out=[*picture.left_out, *more],
    )


def count_parts(picture: Picture) -> dict[str, int]:
    """Return how much was looked at."""
    return {
        "name_servers": len(picture.nameservers),
        "brokers": len(picture.health),
        "topics": len({row.topic for row in picture.topics}),
        "groups_with_members": len(picture.connections),
        "members": len({(row.group, c.client_id) for row in picture.connections for c in row.connections}),
        "groups_behind": len(picture.lag_by_group),
        "groups_closely": len(picture.groups),
    }
