"""startMonitoring: what Java's monitor writes to its log once a minute."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from datetime import datetime, timedelta

from eruca._admin.progress import Progress, QueueProgress
from eruca._cli.mqadmin.call import ALL, Call, ask_each
from eruca._cli.mqadmin.groups import find_connections, list_members
from eruca._cli.mqadmin.javatext import show_queue, to_ms
from eruca._cli.mqadmin.running import have_same_subscriptions, list_complaints
from eruca._wire.names import OFFSET_MOVED_TOPIC, RETRY_PREFIX
from eruca.errors import ErucaError, NoRoute

_INTERVAL_S = 60
_ROUND = "=" * 41
_MS = timedelta(milliseconds=1)


async def start_monitoring(call: Call) -> None:
    """Report once a minute how far all groups are, and what is wrong with their members."""
    watcher = asyncio.create_task(_watch_moved(call))
    try:
        async for _ in call.rounds(call.line.number("interval", _INTERVAL_S)):
            call.out.say("[MONITOR] %sbeginRound", _ROUND)
            await _report_all(call)
            call.out.say("[MONITOR] %sendRound", _ROUND)
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def _report_all(call: Call) -> None:
    topics = call.take(await call.admin.topics.list(kind="retry", limit=ALL))
    groups = [topic.name.removeprefix(RETRY_PREFIX) for topic in topics]
    for group, progress in await ask_each(groups, call.admin.offsets.progress):
        # Like Java's, it is silent about groups without members.
        with suppress(ErucaError):
            members = list_members(await find_connections(call, group))
            if progress is not None:
                await _report_lag(call, group, progress)
            await _report_members(call, group, [member.client_id for member in members])


async def _report_lag(call: Call, group: str, progress: Progress) -> None:
    topics: dict[str, list[QueueProgress]] = defaultdict(list)
    for row in progress.queues.items:
        topics[row.topic].append(row)
    for topic, rows in topics.items():
        lags = [row.end - row.offset for row in rows]
        newest = await _find_newest(call, topic)
        delays = [
            newest[row.broker, row.queue] - row.consumed_at
            for row in rows
            if row.consumed_at is not None and (row.broker, row.queue) in newest
        ]
        call.out.say(
            "[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=%s, topic=%s, undoneMsgsTotal=%d,"
            " undoneMsgsSingleMQ=%d, undoneMsgsDelayTimeMills=%d]",
            *(
                group,
                topic,
                sum(lag for lag in lags if lag > 0),
                max(lags),
                max(0, *(each / _MS for each in delays), 0),
            ),
        )


async def _find_newest(call: Call, topic: str) -> dict[tuple[str, int], datetime]:
    """Return when the last message of each queue was stored."""
    try:
        found = await call.admin.topics.queues(topic, limit=ALL)
    except ErucaError:
        return {}
    return {(row.broker, row.queue): row.last_at for row in found.items if row.last_at is not None}


async def _report_members(call: Call, group: str, client_ids: list[str]) -> None:
    asked = await ask_each(client_ids, lambda client_id: call.admin.clients.running(group, client_id))
    members = {client_id: running for client_id, running in asked if running is not None}
    if not members:
        return
    if not have_same_subscriptions(members):
        call.out.say("[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: %s, Subscription different", group)
    for client_id in sorted(members):
        for complaint in list_complaints(client_id, members[client_id]):
            call.out.say(
                "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: %s, ClientId: %s, %s",
                *(group, client_id, complaint),
            )


async def _watch_moved(call: Call) -> None:
    """Report the notes that brokers write when a consumer asks for messages that were deleted."""
    with suppress(NoRoute):  # no broker has ever written one
        async for note in call.admin.messages.tail(OFFSET_MOVED_TOPIC):
            with suppress(ValueError, KeyError, TypeError):
                event = json.loads(note.body)
                queue = event["messageQueue"]
                call.out.say(
                    "[MONITOR] reportDeleteMsgsEvent: DeleteMsgsEvent [offsetMovedEvent=OffsetMovedEvent"
                    " [consumerGroup=%s, messageQueue=%s, offsetRequest=%s, offsetNew=%s], eventTimestamp=%d]",
                    event["consumerGroup"],
                    show_queue(queue["topic"], queue["brokerName"], queue["queueId"]),
                    event["offsetRequest"],
                    event["offsetNew"],
                    to_ms(note.stored_at),
                )
