"""Plans: changes that were looked at but not carried out. Each is used once, soon, and only if nothing has changed."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from eruca._admin.results import Changed
from eruca.errors import ConfigError, ErucaError

#: How long a plan can be applied.
LIFETIME = timedelta(minutes=10)
#: Plans that wait at the same time; a further one replaces the oldest.
PLANS_MAX = 50
_ID_BYTES = 6

# Runs the change, or with True only shows it: the result is that of the admin API.
Deed: TypeAlias = Callable[[bool], Awaitable[Any]]
# Whether a later preview is still what was planned.
Comparison: TypeAlias = Callable[[Any, Any], bool]


class PlanRefused(ErucaError):
    """A plan cannot be applied: it is unknown, used, too old, or no longer true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One change."""

    id: str
    # What it does, in one sentence.
    what: str
    # The name that has to be repeated to confirm it: of the group, topic or broker.
    target: str
    # The command that does the same.
    command: str
    made_at: datetime
    # The result of the dry run: before and after.
    preview: Any
    deed: Deed
    is_same: Comparison

    @property
    def expires_at(self) -> datetime:
        """When it can no longer be applied."""
        return self.made_at + LIFETIME


class Plans:
    """The plans of one server."""

    def __init__(self, find_now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._find_now = find_now
        self._plans: dict[str, Plan] = {}
        # Why plans are gone, so that the answer can say so. As many as plans.
        self._gone: dict[str, str] = {}

    async def make(
        self,
        what: str,
        target: str,
        command: str,
        deed: Deed,
        is_same: Comparison = lambda before, now: _drop_warnings(before) == _drop_warnings(now),
    ) -> Plan:
        """Try a change without carrying it out, and keep it as a plan. Raises what the dry run raises."""
        preview = await deed(True)
        plan = Plan(
            id=secrets.token_hex(_ID_BYTES),
            what=what,
            target=target,
            command=command,
            made_at=self._find_now(),
            preview=preview,
            deed=deed,
            is_same=is_same,
        )
        self._expire()
        while len(self._plans) >= PLANS_MAX:
            self._drop(next(iter(self._plans)), "newer plans replaced it")
        self._plans[plan.id] = plan
        return plan

    def list(self) -> list[Plan]:
        """Return the plans that can be applied, oldest first."""
        self._expire()
        return list(self._plans.values())

    def find(self, name: str) -> Plan:
        """Return a plan that can be applied. Raises PlanRefused."""
        self._expire()
        plan = self._plans.get(name)
        if plan is None:
            why = self._gone.get(name, "there is no such plan")
            raise PlanRefused(f"plan {name[:40]!r} cannot be applied: {why}", hint="make a new plan")
        return plan

    async def apply(self, name: str, confirm: str) -> Any:
        """Carry out a plan, once. Raises PlanRefused, and ConfigError if it is not confirmed."""
        plan = self.find(name)
        if confirm != plan.target:
            raise ConfigError(
                f"plan {plan.id} is not confirmed", hint=f"pass confirm={plan.target!r}, after the user has agreed"
            )
        # From here on it is used, whatever happens: a change must not be made twice.
        self._drop(plan.id, "it has been applied")
        now = await plan.deed(True)
        if not plan.is_same(plan.preview, now):
            self._gone[plan.id] = "the state has changed since"
            raise PlanRefused(f"plan {plan.id} was not applied: the state has changed since", hint="make a new plan")
        return await plan.deed(False)

    def _expire(self) -> None:
        now = self._find_now()
        for plan in [plan for plan in self._plans.values() if plan.expires_at <= now]:
            self._drop(plan.id, f"it expired after {LIFETIME.seconds // 60} minutes")

    def _drop(self, name: str, why: str) -> None:
        del self._plans[name]
        while len(self._gone) >= PLANS_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[name] = why


def _drop_warnings(result: Any) -> Any:
    """Return a change without its warnings: they count messages, whose number changes all the time."""
    return msgspec.structs.replace(result, warnings=[]) if isinstance(result, Changed) else result
