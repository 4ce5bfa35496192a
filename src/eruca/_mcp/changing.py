"""Tools that change something, in two steps: a plan shows what would happen, and applying it does so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eruca._admin.admin import Admin
from eruca._admin.deadletters import Resent, Wanted
from eruca._admin.moving import Move, Moved, is_same_move
from eruca._admin.plans import Comparison, Deed, Plan, PlanRefused, Plans
from eruca._admin.results import Change, Changed
from eruca._ground.commandlines import write_command
from eruca._ground.times import read_moment
from eruca._mcp.bounds import write_answer
from eruca.errors import ConfigError

# Dead letters that one plan sends again.
_LETTERS_MAX = 1000


class Changing:
    """The tools that plan changes and apply them; without `allowed` nothing is applied."""

    def __init__(self, admin: Admin, plans: Plans, *, allowed: bool) -> None:
        self._admin = admin
        self._plans = plans
        self._allowed = allowed
        self.tools = (
            self.plan_reset_offsets,
            self.plan_shift_offsets,
            self.plan_resend_dead_letters,
            self.plan_create_topic,
            self.plan_update_topic,
            self.plan_update_group,
            self.plan_broker_config,
            self.list_plans,
        )

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def plan_reset_offsets(self, group: str, topic: str, to: str) -> str:
        """Plan to move a group in a topic to "earliest", "latest", a time ago such as "-2h", or a time such as
        2026-11-15T07:00:00+00:00. Moving back repeats messages, moving forward skips them."""
        moment = read_moment(to)
        offsets = self._admin.offsets

        async def deed(dry_run: bool) -> Moved:
            return await offsets.reset(group, topic, moment, dry_run=dry_run)

        return await self._plan(
            f"move group {group} in topic {topic} to {to}",
            group,
            ["offset", "reset", group, topic, "--to", to],
            deed,
            lambda before, now: is_same_move(before, now, to_end=moment == "latest"),
        )

    async def plan_shift_offsets(self, group: str, topic: str, by: int) -> str:
        """Plan to move a group by some messages in each queue of a topic: back (negative) or forward. The members of
        the group must be stopped."""
        offsets = self._admin.offsets

        async def deed(dry_run: bool) -> Moved:
            return await offsets.shift(group, topic, by, dry_run=dry_run)

        return await self._plan(
            f"move group {group} by {by} messages in each queue of topic {topic}",
            group,
            ["offset", "shift", group, topic, f"--by={by}"],
            deed,
            is_same_move,
        )

    # -- dead letters ------------------------------------------------------------------------------------------------

    async def plan_resend_dead_letters(
        self, group: str, ids: list[str] | None = None, to_topic: str = "", limit: int = 100
    ) -> str:
        """Plan to send dead letters of a group again: those with some ids, or the oldest ones up to a limit. Only this
        group gets them, unless `to_topic` is another topic. They remain dead letters, so a second plan would send them
        once more."""
        room = max(1, min(limit, _LETTERS_MAX))
        wanted = Wanted(ids=tuple(ids or ()), limit=room)
        letters = self._admin.dead_letters

        async def deed(dry_run: bool) -> list[Resent]:
            rows = letters.resend(group, wanted, only_group=not to_topic, topic=to_topic or None, dry_run=dry_run)
            return [row async for row in rows]

        plan = await self._make(
            f"send dead letters of group {group} again",
            group,
            [
                *("dlq", "resend", group, *(ids or ["--all", "--limit", str(room)])),
                *(["--to-topic", to_topic] if to_topic else ["--only-group"]),
            ],
            deed,
        )
        if not plan.preview:
            raise ConfigError(f"group {group} has no such dead letter", hint="dead_letters lists them")
        return self._show(plan)

    # -- topics and groups -------------------------------------------------------------------------------------------

    async def plan_create_topic(self, topic: str, queues: int = 8, permission: str = "RW", broker: str = "") -> str:
        """Plan to create a topic with some queues per broker, on all masters or on one broker."""
        topics, brokers = self._admin.topics, [broker] if broker else None

        async def deed(dry_run: bool) -> Changed[Any]:
            return await topics.create(topic, queues=queues, permission=permission, brokers=brokers, dry_run=dry_run)

        command = ["topic", "create", topic, "--queues", str(queues), "--permission", permission]
        return await self._plan(
            f"create topic {topic} with {queues} queues per broker",
            topic,
            [*command, *(["--broker", broker] if broker else [])],
            deed,
        )

    async def plan_update_topic(self, topic: str, queues: int = 0, permission: str = "", broker: str = "") -> str:
        """Plan to change a topic: its number of queues per broker, or its permission (RW, R, W or -)."""
        if not queues and not permission:
            raise ConfigError("nothing to change", hint="pass queues or permission")
        topics, brokers = self._admin.topics, [broker] if broker else None

        async def deed(dry_run: bool) -> Changed[Any]:
            return await topics.update(
                topic, queues=queues or None, permission=permission or None, brokers=brokers, dry_run=dry_run
            )

        command = ["topic", "update", topic]
        command += ["--queues", str(queues)] if queues else []
        command += ["--permission", permission] if permission else []
        return await self._plan(
            f"change topic {topic}", topic, [*command, *(["--broker", broker] if broker else [])], deed
        )

    async def plan_update_group(self, group: str, retries: int = -1, consume: bool | None = None) -> str:
        """Plan to change a group: how many times a message is delivered again before it becomes a dead letter, or
        whether the group may consume at all."""
        if retries < 0 and consume is None:
            raise ConfigError("nothing to change", hint="pass retries or consume")
        groups = self._admin.groups

        async def deed(dry_run: bool) -> Changed[Any]:
            return await groups.update(
                group, retries=None if retries < 0 else retries, consume=consume, dry_run=dry_run
            )

        command = ["group", "update", group]
        command += ["--retries", str(retries)] if retries >= 0 else []
        command += [] if consume is None else ["--consume" if consume else "--no-consume"]
        return await self._plan(f"change group {group}", group, command, deed)

    async def plan_broker_config(self, broker: str, options: dict[str, str]) -> str:
        """Plan to change options of a broker (its name or address), by their names in broker.conf."""
        if not options:
            raise ConfigError("nothing to change", hint='pass options, for example {"fileReservedTime": "96"}')
        brokers = self._admin.brokers

        async def deed(dry_run: bool) -> Changed[dict[str, str]]:
            return await brokers.set_config(options, broker=broker, dry_run=dry_run)

        words = [f"{name}={text}" for name, text in sorted(options.items())]
        names = ", ".join(sorted(options))
        return await self._plan(
            f"change {names} of broker {broker}", broker, ["broker", "config", "set", *words, "--broker", broker], deed
        )

    # -- plans -------------------------------------------------------------------------------------------------------

    async def list_plans(self) -> str:
        """The plans that can still be applied."""
        return write_answer({"plans": [self._describe(plan) for plan in self._plans.list()]})

    async def apply_plan(self, plan_id: str, confirm: str) -> str:
        """Carry out a plan, once. Show the user its before and after first and ask for agreement; then pass the name of
        what it changes as `confirm`. Refused if the plan is older than ten minutes or the state has changed since."""
        self.require_allowed()
        result = await self._plans.apply(plan_id, confirm)
        undo = getattr(result, "undo", [])
        rows = count_outcomes(result)
        return write_answer({"outcomes": rows, "result": result, "undo": undo})

    def require_allowed(self) -> None:
        """Raise PlanRefused if the server may not change anything."""
        if not self._allowed:
            raise PlanRefused(
                "this server is read-only: nothing was changed",
                hint="start it with `eruca mcp --allow-changes`, or run the command of the plan",
            )

    async def _plan(
        self, what: str, target: str, words: list[str], deed: Deed, is_same: Comparison | None = None
    ) -> str:
        return self._show(await self._make(what, target, words, deed, is_same))

    async def _make(
        self, what: str, target: str, words: list[str], deed: Deed, is_same: Comparison | None = None
    ) -> Plan:
        command = write_command(*words)
        if is_same is None:
            return await self._plans.make(what, target, command, deed)
        return await self._plans.make(what, target, command, deed, is_same)

    def _show(self, plan: Plan) -> str:
        outcomes = count_outcomes(plan.preview)
        notes = [] if self._allowed else ["this server is read-only: it cannot apply the plan; `command` does the same"]
        if outcomes.get("failed"):
            notes.append("parts of it would fail: see the reasons")
        return write_answer({**self._describe(plan), "outcomes": outcomes, "preview": plan.preview}, notes)

    @staticmethod
    def _describe(plan: Plan) -> dict[str, Any]:
        return {
            "plan_id": plan.id,
            "what": plan.what,
            "confirm_with": plan.target,
            "expires_at": plan.expires_at,
            "command": plan.command,
        }


def count_outcomes(result: Any) -> dict[str, int]:
    """Return how many parts of a change have which outcome."""
    rows: Sequence[Move | Change[Any] | Resent]
    rows = result.moves if isinstance(result, Moved) else result.changes if isinstance(result, Changed) else result
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    return counts
