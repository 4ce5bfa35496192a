"""producerConnection, producer, consumerStatus."""

from __future__ import annotations

import asyncio
from pathlib import Path

from eruca._admin.clients import RunningInfo
from eruca._cli.mqadmin.call import ALL, Call, ask_each
from eruca._cli.mqadmin.groups import find_connections, list_members
from eruca._cli.mqadmin.javatext import java_version, java_version_number, now_ms, to_ms
from eruca._cli.mqadmin.running import format_running, have_same_subscriptions, list_complaints, name_file
from eruca._ground.smallfiles import replace_file
from eruca.errors import NoRoute


async def producer_connection(call: Call) -> None:
    """Show the connected producers of a group that could send to a topic."""
    group, topic = call.line.text("g"), call.line.text("t")
    brokers = {row.broker for row in (await call.admin.routes.show(topic)).brokers}
    rows = call.take(await call.admin.clients.producers(group, limit=ALL))
    found = list({row.client_id: row for row in rows if row.broker.split(":")[0] in brokers}.values())
    if not found:
        raise NoRoute(f"no producer of group {group} is connected", hint="a producer connects with its first message")
    for number, row in enumerate(found, 1):
        version = java_version(row.version)
        call.out.say("%04d  %-32s %-22s %-8s %s", number, row.client_id, row.address, row.language, version)


async def producer(call: Call) -> None:
    """List the producers that are connected to a broker."""
    for row in await call.list_brokers():
        for each in call.take(await call.admin.clients.producers(broker=row.address, limit=ALL)):
            call.out.say(
                "producer group (%s) instance : clientId=%s,remoteIP=%s, language=%s, version=%d,"
                " lastUpdateTimestamp=%d",
                each.group,
                each.client_id,
                each.address,
                each.language,
                java_version_number(each.version),
                to_ms(each.seen_at),
            )


async def consumer_status(call: Call) -> None:
    """Show what the members of a group are doing: a file for each, or one member on the screen."""
    group, client_id, stack = call.line.text("g"), call.line.find("i"), call.line.has("s")
    if client_id is not None:
        call.out.say("%s", format_running(await call.admin.clients.running(group, client_id, stack=stack)).rstrip("\n"))
        return
    members = list_members(await find_connections(call, group, call.line.find("b")))
    folder = Path(str(now_ms()))
    show = call.out.table("%-10s %-40s %-20s %s", "Index", "ClientId", "Version", "ConsumerRunningInfoFile")
    answered: dict[str, RunningInfo] = {}
    for member, running in await ask_each(
        members, lambda member: call.admin.clients.running(group, member.client_id, stack=stack)
    ):
        if running is None:
            call.out.fail(f"{member.client_id} does not answer")
            continue
        answered[member.client_id] = running
        path = folder / name_file(member.client_id)
        await asyncio.to_thread(replace_file, path, format_running(running).encode())
        show(len(answered), member.client_id, java_version(member.version), path)
    if answered:
        _judge(call, answered)


def _judge(call: Call, members: dict[str, RunningInfo]) -> None:
    call.out.say("\n")
    if not have_same_subscriptions(members):
        call.out.say("WARN: Different subscription in the same group of consumer!!!")
        return
    call.out.say("Same subscription in the same group of consumer\n\nRebalance OK")
    for client_id in sorted(members):
        for complaint in list_complaints(client_id, members[client_id]):
            call.out.say("%s", complaint)
