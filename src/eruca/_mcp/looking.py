"""Tools that look: each asks the admin API and returns a bounded answer. The docstrings are what an assistant reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from eruca._admin.admin import Admin
from eruca._admin.deadletters import Wanted
from eruca._admin.doctor.findings import Limits, Severity
from eruca._admin.results import Listed
from eruca._admin.storedmessages import StoredMessage
from eruca._ground.times import read_time
from eruca._mcp.bounds import write_answer
from eruca.errors import ConfigError

# Rows of a list unless the assistant asks for more, and the most it gets.
_ROWS = 50
_ROWS_MAX = 200
# Groups whose progress is summed for a list.
_QUEUES_MAX = 200_000
_BODY_CHARS_MAX = 500
_DOCTOR = Limits(groups_closely=30, groups_compared=50, findings=10)


class Looking:
    """The tools that change nothing."""

    def __init__(self, admin: Admin, *, show_bodies: bool) -> None:
        self._admin = admin
        self._show_bodies = show_bodies
        self.tools = (
            self.overview,
            self.doctor,
            self.brokers,
            self.config,
            self.topics,
            self.topic,
            self.groups,
            self.group,
            self.lag,
            self.find_messages,
            self.dead_letters,
            self.transactions,
        )

    # -- servers -----------------------------------------------------------------------------------------------------

    async def overview(self) -> str:
        """The cluster at a glance: name servers, brokers with role, version, disk and rates, and the groups that are
        furthest behind. Start here."""
        admin = self._admin
        servers, health, runtime = await _all(admin.nameservers.list(), admin.brokers.health(), admin.brokers.runtime())
        members = {row.address: row for row in (await admin.cluster.members()).items}
        figures = {row.address: row for row in runtime.items}
        brokers = []
        for row in health.items:
            rates, member = figures.get(row.address), members.get(row.address)
            brokers.append(
                {
                    **msgspec.structs.asdict(row),
                    "role": "" if member is None else member.role,
                    "stored_per_second": rates.put_rates[:1] if rates is not None else [],
                    "fetched_per_second": rates.transferred_rates[:1] if rates is not None else [],
                }
            )
        behind, notes = await self._sum_lag("")
        return write_answer(
            {"name_servers": servers.items, "brokers": brokers, "groups_furthest_behind": behind[:10]},
            [*_note(servers), *_note(health), *notes],
        )

    async def doctor(self, at_least: str = "info") -> str:
        """Look for all that is wrong with the cluster: findings with severity (info, warning, critical), evidence and
        what to do. Takes a few seconds. `at_least`: only findings as bad as this."""
        if at_least not in list(Severity):
            raise ConfigError(f"at_least={at_least!r}: expected info, warning or critical")
        found = await self._admin.doctor.examine(limits=_DOCTOR)
        chosen = found.at_least(Severity(at_least))
        return write_answer(
            {"healthy": found.is_healthy, "looked_at": found.looked_at, "findings": chosen, "left_out": found.left_out}
        )

    async def brokers(self, broker: str = "") -> str:
        """All brokers, masters and slaves: role, health, replication lag. With a `broker` (its name or address): all
        that it reports about itself, such as rates, disk, store and delay levels."""
        admin = self._admin
        if broker:
            runtime = await admin.brokers.runtime(broker)
            return write_answer({"runtime": runtime.items}, _note(runtime))
        members, lag, health = await _all(admin.cluster.members(), admin.cluster.lag(), admin.brokers.health())
        rows = [
            {
                "cluster": row.cluster,
                "broker": row.broker,
                "id": row.broker_id,
                "address": row.address,
                "role": row.role or "does not answer",
                "epoch": None if row.state is None else row.state.epoch,
                "problem": row.problem,
            }
            for row in members.items
        ]
        return write_answer(
            {"members": rows, "slaves": lag.items, "health": health.items}, [*_note(members), *_note(lag)]
        )

    async def config(self, broker: str, contains: str = "") -> str:
        """The options of a broker (its name or address): those whose name contains a text. Secrets are hidden."""
        found = await self._admin.brokers.config(broker)
        rows = [
            {
                "broker": row.where,
                "address": row.address,
                "options": {
                    name: text for name, text in sorted(row.options.items()) if contains.lower() in name.lower()
                },
            }
            for row in found.items
        ]
        return write_answer({"brokers": rows}, _note(found))

    # -- topics and groups -------------------------------------------------------------------------------------------

    async def topics(self, prefix: str = "", kind: str = "normal", limit: int = _ROWS) -> str:
        """The names of topics that start with a prefix. `kind`: normal, retry, dlq, system or all."""
        found = await self._admin.topics.list(prefix, kind=kind, limit=_bound(limit))
        return write_answer({"topics": [row.name for row in found.items]}, _note(found))

    async def topic(self, topic: str) -> str:
        """One topic: settings on each broker, ends of its queues, groups, and messages per second in and out."""
        found = await self._admin.topics.show(topic, limit=_ROWS_MAX)
        traffic = await self._admin.topics.traffic(topic)
        rates = {
            "stored_per_second": {rate.broker: rate.minute_rate for rate in traffic.stored},
            "consumed_per_second": {rate.key: rate.minute_rate for rate in traffic.consumed},
        }
        notes = ["not all queues are shown"] if found.cut else []
        return write_answer({**msgspec.structs.asdict(found), "messages": found.count, **rates}, notes)

    async def groups(self, prefix: str = "", limit: int = _ROWS) -> str:
        """Consumer groups whose name starts with a prefix, those with the most messages waiting first."""
        found = await self._admin.groups.list(prefix, limit=_QUEUES_MAX)
        lags, notes = await self._sum_lag(prefix)
        behind = {row["group"]: row for row in lags}
        names = sorted((row.name for row in found.items), key=lambda name: (-behind.get(name, {"lag": 0})["lag"], name))
        rows = [behind.get(name, {"group": name, "lag": 0}) for name in names]
        room = _bound(limit)
        if len(rows) > room:
            notes.append(f"{room} of {len(rows)} groups are shown")
        return write_answer({"groups": rows[:room]}, [*_note(found), *notes])

    async def group(self, group: str) -> str:
        """Why is a group behind? Its members, what each queue is waiting for and since when, who owns it, the message
        it is stuck on, differing subscriptions, dead letters, and what is wrong with it. Takes about a second."""
        examination, found = await self._admin.doctor.examine_group(group)
        rows = [row for row in sorted(found.queues, key=lambda row: -row.lag)]
        return write_answer(
            {
                "findings": examination.findings,
                "group": found.name,
                "lag": found.lag,
                "lag_seconds": None if found.lag_time is None else found.lag_time.total_seconds(),
                "rate": found.rate,
                "model": found.model,
                "kind": found.kind,
                "start": found.start,
                "dead_letters": found.dead_letters,
                "members": found.members,
                "subscriptions": found.subscriptions,
                "differences": found.differences,
                "settings": found.brokers,
                "queues": rows,
            },
            [*examination.left_out, *(["not all queues or members are shown"] if found.cut else [])],
        )

    async def lag(self, group: str = "", topic: str = "") -> str:
        """How far groups are behind, in messages and in seconds: a group, the groups of a topic, or the 20 groups that
        are furthest behind."""
        names = [group] if group else []
        notes: list[str] = []
        if not names:
            behind, notes = await self._sum_lag("", topic)
            names = [row["group"] for row in behind[:20]]
            if len(behind) > len(names):
                notes.append(f"{len(names)} of {len(behind)} groups with a backlog are shown, those with the largest")
        if not names:
            return write_answer({"queues": []}, notes or ["no group has a backlog"])
        found = await self._admin.offsets.lag(names, [topic] if topic else ())
        rows = sorted((row for row in found.items if row.lag or group), key=lambda row: -row.lag)
        whole = {
            "messages": sum(row.lag for row in rows),
            "longest_wait": max((row.lag_time for row in rows if row.lag_time is not None), default=None),
        }
        return write_answer({**whole, "queues": rows}, [*_note(found), *notes])

    async def _sum_lag(self, prefix: str, topic: str = "") -> tuple[list[dict[str, Any]], list[str]]:
        """Return the groups with a backlog, the largest first."""
        found = await self._admin.brokers.consume_stats(lag_min=1, limit=_QUEUES_MAX)
        lags: dict[str, int] = {}
        for row in found.items:
            if row.group.startswith(prefix) and topic in ("", row.topic):
                lags[row.group] = lags.get(row.group, 0) + row.lag
        ordered = sorted(lags.items(), key=lambda item: (-item[1], item[0]))
        return [{"group": name, "lag": lag} for name, lag in ordered], _note(found)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def find_messages(
        self,
        topic: str,
        key: str = "",
        message_id: str = "",
        since: str = "",
        until: str = "",
        limit: int = 10,
    ) -> str:
        """Find messages of a topic: by key, by message id, or by the time they were stored (2026-11-15T07:00:00+00:00).
        For a single message also what each group did with it."""
        begin, end = _read_time(since), _read_time(until)
        room = min(_bound(limit), _ROWS)
        messages, notes = self._admin.messages, []
        if message_id:
            found = await messages.find(topic, message_id, limit=room)
        elif key:
            found = await messages.find_by_key(topic, key, since=begin, until=end, limit=room)
        else:
            rows = [row async for row in messages.read(topic, since=begin, until=end, limit=room + 1)]
            found = Listed(items=rows[:room], cut=len(rows) > room)
        whole: dict[str, Any] = {"messages": [self._describe(row) for row in found.items]}
        if len(found.items) == 1:
            tracks = await messages.tracks(found.items[0].offset_id)
            whole["groups"] = tracks.items
        if not self._show_bodies:
            notes.append("bodies and properties are not shown: the server was started without --show-bodies")
        return write_answer(whole, [*_note(found), *notes])

    def _describe(self, row: StoredMessage) -> dict[str, Any]:
        facts = msgspec.structs.asdict(row)
        body: bytes = facts.pop("body")
        properties: dict[str, str] = facts.pop("properties")
        facts["body_bytes"] = len(body)
        if self._show_bodies:
            text = body.decode("utf-8", "backslashreplace")
            more = f"... ({len(text) - _BODY_CHARS_MAX} more characters)" if len(text) > _BODY_CHARS_MAX else ""
            facts |= {"body": text[:_BODY_CHARS_MAX] + more, "properties": properties}
        return facts

    async def dead_letters(self, group: str = "", limit: int = 20) -> str:
        """Messages that consumers gave up on: how many each group has, or those of one group."""
        if not group:
            counts = await self._admin.dead_letters.list(limit=_QUEUES_MAX)
            rows = sorted((row for row in counts.items if row.count), key=lambda row: -row.count)
            return write_answer({"groups": rows}, _note(counts))
        letters = [
            self._describe(row) async for row in self._admin.dead_letters.read(group, Wanted(limit=_bound(limit)))
        ]
        total = await self._admin.dead_letters.count(group)
        notes = [f"{len(letters)} of {total} are shown, the oldest"] if total > len(letters) else []
        return write_answer({"count": total, "letters": letters}, notes)

    async def transactions(self, limit: int = _ROWS) -> str:
        """Transactions that are undecided or that brokers have given up asking about."""
        found = await self._admin.transactions.list(limit=_bound(limit))
        return write_answer({"transactions": found.items}, _note(found))


async def _all(*work: Any) -> Any:
    import asyncio

    return await asyncio.gather(*work)


def _bound(limit: int) -> int:
    return max(1, min(limit, _ROWS_MAX))


def _note(listed: Listed[Any]) -> list[str]:
    """Return what is missing from a list."""
    notes = [f"{problem.where}: {problem.error}" for problem in listed.problems]
    return [*notes, f"there are more than {len(listed.items)}"] if listed.cut else notes


def _read_time(text: str) -> datetime | None:
    return read_time(text) if text else None
