"""Plans of changes: applied once, in time, confirmed, and only if they are still true."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca._admin.plans import LIFETIME, PLANS_MAX, PlanRefused, Plans
from eruca.errors import ConfigError


class Setting:
    """Something that can be changed; a dry run returns before and after."""

    def __init__(self) -> None:
        self.value = 1
        self.changes = 0

    async def set_two(self, dry_run: bool) -> tuple[int, int]:
        before = self.value
        if not dry_run:
            self.value, self.changes = 2, self.changes + 1
        return before, 2


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 15, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def test_a_plan_changes_nothing_until_it_is_applied_and_only_once() -> None:
    plans, setting = Plans(), Setting()
    plan = await plans.make("set it", "setting", "eruca set", setting.set_two)
    assert (plan.preview, setting.value, plans.list()) == ((1, 2), 1, [plan])
    assert await plans.apply(plan.id, "setting") == (1, 2)
    assert (setting.value, plans.list()) == (2, [])
    with pytest.raises(PlanRefused, match="it has been applied"):
        await plans.apply(plan.id, "setting")
    assert setting.changes == 1


async def test_a_plan_that_is_not_confirmed_remains() -> None:
    plans, setting = Plans(), Setting()
    plan = await plans.make("set it", "setting", "eruca set", setting.set_two)
    with pytest.raises(ConfigError, match="not confirmed"):
        await plans.apply(plan.id, "yes")
    assert setting.value == 1
    await plans.apply(plan.id, "setting")
    assert setting.value == 2


async def test_a_plan_expires() -> None:
    clock, setting = Clock(), Setting()
    plans = Plans(clock)
    plan = await plans.make("set it", "setting", "eruca set", setting.set_two)
    clock.now += LIFETIME - timedelta(seconds=1)
    assert plans.find(plan.id) is plan
    clock.now += timedelta(seconds=1)
    with pytest.raises(PlanRefused, match="expired after 10 minutes"):
        await plans.apply(plan.id, "setting")
    assert (setting.value, plans.list()) == (1, [])


async def test_a_plan_is_refused_if_the_state_has_changed() -> None:
    plans, setting = Plans(), Setting()
    plan = await plans.make("set it", "setting", "eruca set", setting.set_two)
    setting.value = 7
    for _ in range(2):  # it is used up
        with pytest.raises(PlanRefused, match="the state has changed since"):
            await plans.apply(plan.id, "setting")
    assert setting.changes == 0


async def test_only_so_many_plans_wait() -> None:
    plans, setting = Plans(), Setting()
    made = [await plans.make("set it", "setting", "eruca set", setting.set_two) for _ in range(PLANS_MAX + 1)]
    assert plans.list() == made[1:]
    with pytest.raises(PlanRefused, match="newer plans replaced it"):
        plans.find(made[0].id)
    with pytest.raises(PlanRefused, match="there is no such plan"):
        plans.find("nothing")
