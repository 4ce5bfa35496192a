"""`Doctor` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.doctor.doctor` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from eruca._admin.doctor.doctor import USUAL_LIMITS, USUAL_RULES
from eruca._admin.doctor.doctor import Doctor as AsyncDoctor
from eruca._admin.doctor.findings import Examination, Limits, Rules
from eruca._admin.groups import Group
from eruca._admin.sync.base import PlainPart


class Doctor(PlainPart[AsyncDoctor]):
    """Looks at a cluster and reports what is wrong with it: `admin.doctor`."""

    def examine(self, *, rules: Rules = USUAL_RULES, limits: Limits = USUAL_LIMITS) -> Examination:
        """Look at the cluster and return what is wrong, how bad it is, and what to do. Changes nothing.

        Offsets of groups are read twice, `limits.sample` seconds apart. What was not looked at is in `left_out`.
        """
        return self._run(self._twin.examine(rules=rules, limits=limits))

    def examine_group(
        self, group: str, *, rules: Rules = USUAL_RULES, limits: Limits = USUAL_LIMITS
    ) -> tuple[Examination, Group]:
        """Look at one group only, and return it too: why is it behind? Raises NoRoute if no broker knows it."""
        return self._run(self._twin.examine_group(group, rules=rules, limits=limits))
