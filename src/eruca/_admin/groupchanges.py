"""Creating, changing and deleting groups on brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import read_membership
from eruca._admin.results import Change, Changed, Problem, Undo, fail_silent, name_outcome
from eruca._admin.savedoffsets import export_offsets
from eruca._admin.settings import GroupSettings, describe_group, make_group_config, read_group_configs
from eruca._admin.targets import BrokerRow, ask_each, change_each
from eruca._admin.topicchanges import delete_topic
from eruca._ground.printable import say_count
from eruca._wire.codes import RequestCode
from eruca._wire.headers import DeleteGroupHeader
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX
from eruca.errors import ConfigError, ErucaError, NoRoute

# What becomes of the settings of a group on one broker; None: nothing.
Choose = Callable[[GroupSettings | None], GroupSettings | None]


async def read_group_settings(
    connection: Connection, group: str, rows: Sequence[BrokerRow]
) -> tuple[dict[str, GroupSettings | None], list[Problem]]:
    """Return the settings of a group by broker, None where it has none."""

    async def read(row: BrokerRow) -> GroupSettings | None:
        config = (await read_group_configs(connection, row.address)).get(group)
        return None if config is None else describe_group(config)

    found, problems = await ask_each(rows, read)
    return {row.where: settings for row, settings in found}, problems


async def put_group(
    connection: Connection, group: str, rows: Sequence[BrokerRow], choose: Choose, *, is_new: bool, dry_run: bool
) -> Changed[GroupSettings]:
    """Create or change a group on some brokers."""
    before, problems = await read_group_settings(connection, group, rows)
    wanted = {where: choose(was) for where, was in before.items()}
    others = [where for where, was in before.items() if was is not None and was != wanted[where]]
    if is_new and others:
        raise ConfigError(
            f"{', '.join(others)} has a group {group} with other settings",
            hint=f"eruca group show {group} shows them, eruca group update changes them",
        )
    rows = [row for row in rows if wanted.get(row.where) is not None]
    if not rows and not problems:
        raise explain_unknown(group)

    async def put(row: BrokerRow) -> Change[GroupSettings]:
        was, after = before[row.where], wanted[row.where]
        assert after is not None
        if not dry_run and was != after:
            config = make_group_config(group, after)
            await connection.ask(row.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
        outcome = name_outcome(was, after, dry_run=dry_run)
        return Change(where=row.where, before=was, after=after, outcome=outcome)

    changes = await change_each(rows, put, before)
    return Changed(name=group, changes=changes + fail_silent(problems), undo=_undo_put(group, changes))


def _undo_put(group: str, changes: Sequence[Change[GroupSettings]]) -> list[Undo]:
    changed = [change for change in changes if change.outcome in ("done", "planned")]
    created = [change.where for change in changed if change.before is None]
    undo = []
    if created:
        undo.append(Undo(method="groups.delete", arguments={"group": group, "brokers": created}))
    return undo + _list_undo("groups.update", group, changed)


def _list_undo(method: str, group: str, changes: Sequence[Change[GroupSettings]]) -> list[Undo]:
    """Return calls that restore the settings before."""
    undo = []
    for before in dict.fromkeys(change.before for change in changes if change.before is not None):
        names = [change.where for change in changes if change.before == before]
        arguments = {"group": group, **msgspec.structs.asdict(before), "brokers": names}
        undo.append(Undo(method=method, arguments=arguments))
    return undo


async def delete_group(
    connection: Connection,
    group: str,
    rows: Sequence[BrokerRow],
    *,
    offsets: bool,
    topics: bool,
    force: bool,
    dry_run: bool,
) -> Changed[GroupSettings]:
    """Delete a group from some brokers."""
    before, problems = await read_group_settings(connection, group, rows)
    # Of a group that only has offsets there is nothing to restore.
    saved = await export_offsets(connection, group, rows=rows)
    if not problems and not saved.offsets and all(was is None for was in before.values()):
        raise explain_unknown(group)
    members = (await read_membership(connection, group, rows)).members
    if members and not force:
        raise ConfigError(
            f"group {group} has {say_count(len(members), 'connected member')}, which would create it again",
            hint=f"stop them first; eruca group show {group} lists them",
        )
    rows = [row for row in rows if row.where in before]

    async def delete(row: BrokerRow) -> Change[GroupSettings]:
        was = before[row.where]
        if not dry_run:
            header = DeleteGroupHeader(group_name=group, remove_offset=offsets)
            await connection.ask(row.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            if topics:
                await _delete_topics(connection, group, row)
        return Change(where=row.where, before=was, after=None, outcome="planned" if dry_run else "done")

    changes = await change_each(rows, delete, before)
    undo = _list_undo("groups.create", group, [change for change in changes if change.outcome != "failed"])
    if offsets and saved.offsets:
        undo.append(Undo(method="offsets.restore", arguments={"saved": saved}))
    return Changed(name=group, changes=changes + fail_silent(problems), undo=undo)


async def _delete_topics(connection: Connection, group: str, row: BrokerRow) -> None:
    """Delete the messages to retry and the dead letters of a group on one broker."""
    for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        try:
            changed = await delete_topic(connection, topic, [row], dry_run=False)
        except NoRoute:
            continue  # it never had any
        if changed.failed:
            raise ErucaError(f"{topic} is not deleted: {changed.changes[0].reason}")


def explain_unknown(group: str) -> NoRoute:
    """Return the error for a group that no broker knows."""
    return NoRoute(f"no broker knows a group {group}", hint="eruca group list shows the groups")
