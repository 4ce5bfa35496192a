"""Messages that only the old master had are never dropped silently.

A promotion that would lose acknowledged messages is refused unless forced. What is left behind is in a file when the
old master is back, and the file is listed.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from eruca._wire.codes import ResponseCode
from tests.figures import note_figures
from tests.replication.groups import Group
from tests.replication.load import TOPIC, Ledger, read_number, send_to
from tests.replication.pairs import QUEUES, Member, run_command
from tests.replication.proxy import Way
from tests.replication.segments import list_diverged, read_diverged, read_log

COUNT = 40
OK = int(ResponseCode.SUCCESS)
NOT_SYNCED = {int(ResponseCode.SLAVE_NOT_AVAILABLE), int(ResponseCode.FLUSH_SLAVE_TIMEOUT)}


@pytest.mark.parametrize(
    "role", [pytest.param("SYNC_MASTER", marks=pytest.mark.whole), "ASYNC_MASTER"], ids=lambda role: role.lower()
)
async def test_a_tail_that_only_the_old_master_has_is_set_aside_and_listed(role: str, tmp_path: Path) -> None:
    ledger = Ledger()
    async with Group(tmp_path, members=2, seed=1, faults=True, role=role) as group:
        old, heir = group.members
        assert {await send(group, ledger, old) for _ in range(COUNT)} == {OK}
        common = await group.watch.wait_until_synced([old.address, heir.address])
        cut_off(group)
        codes = {await send(group, ledger, old) for _ in range(COUNT)}
        # A SYNC_MASTER stores, and reports that no slave has it; an ASYNC_MASTER acknowledges.
        assert codes == {OK} if role == "ASYNC_MASTER" else codes <= NOT_SYNCED
        await old.kill()
        promotion = ("cluster", "promote", heir.told_address, "-n", group.names.address)
        status, _, said = await run_command(*promotion)
        if role == "ASYNC_MASTER":
            assert status != 0
            assert "ASYNC_MASTER" in said
            status, _, said = await run_command(*promotion, "--force")
        assert status == 0, said
        for proxy in group.proxies[0]:
            proxy.clear()
        await old.start()
        assert await group.wait_until_whole() is heir
        assert await send(group, ledger, heir) == OK
        await group.watch.wait_until_synced([old.address, heir.address])
        await check_listed(group, old, common)
        faults, line = await group.finish(ledger)
        if role == "SYNC_MASTER":
            assert faults == []
            note_figures(f"divergence, {role}: {line}")
        else:
            # It was forced, so the ledger of this suite must see what was lost.
            told = "\n".join(faults)
            assert "acknowledged and lost" in told
            assert "two messages acknowledged for one place" in told
            assert (
                f"acknowledged and set aside in {(await asyncio.to_thread(list_diverged, old.store))[0].name}" in told
            )
        wanted = [*range(COUNT), 2 * COUNT]
        assert await asyncio.to_thread(list_numbers, old) == await asyncio.to_thread(list_numbers, heir) == wanted
        assert await asyncio.to_thread(list_diverged, heir.store) == []


async def send(group: Group, ledger: Ledger, member: Member) -> int:
    """Send one message to a member; return the response."""
    return (await send_to(group.watch.admin.connection.calls, ledger, member.address, QUEUES)).code


def cut_off(group: Group) -> None:
    """Hide the first member from all that do not know its real address."""
    for proxy in group.proxies[0]:
        for way in Way:
            proxy.weather[way].is_dark = True
        proxy.reset()


async def check_listed(group: Group, old: Member, begin: int) -> None:
    """The old master has its tail in a file, and the command shows where."""
    status, printed, said = await run_command("cluster", "diverged", "-n", group.names.address, "-o", "json")
    assert status == 0, said
    (row,) = [json.loads(line) for line in printed.splitlines()]
    (path,) = await asyncio.to_thread(list_diverged, old.store)
    assert (Path(row["file"]).name, row["begin"], row["address"]) == (path.name, begin, old.told_address)
    aside = await asyncio.to_thread(lambda: [read_number(record.body) for record in read_diverged(path)])
    assert aside == list(range(COUNT, 2 * COUNT))


def list_numbers(member: Member) -> list[int]:
    """The messages a member has, in the order of its log."""
    return [read_number(record.body) for record in read_log(member.store) if record.topic == TOPIC]
