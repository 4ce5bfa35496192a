"""What a consumer reports about itself, as Java's tools print and judge it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from eruca._admin.clients import HeldQueue, RunningInfo, TopicPace
from eruca._cli.mqadmin.javatext import show_bool, show_queue, show_time_compact

# Members that have just started may not know their subscriptions yet.
_SETTLED = timedelta(minutes=2)
# A queue with messages of which none was handled for this long may be stuck.
_STUCK = timedelta(minutes=1)
_UNSAFE = re.compile(r"[^\w.@#$+:-]|^\.+")
_MS = timedelta(milliseconds=1)
_NEVER = datetime.fromtimestamp(0, UTC)


def name_file(client_id: str) -> str:
    """Return a client id as the name of a file: clients choose their ids."""
    return _UNSAFE.sub("_", client_id)


# --- the report -----------------------------------------------------------------------------------------------------


def format_running(running: RunningInfo) -> str:
    """Return the report of a consumer as `ConsumerRunningInfo.formatString` does."""
    return "".join(f"{line}\n" for line in _list_lines(running))


def _list_lines(running: RunningInfo) -> Iterator[str]:
    yield "#Consumer Properties#"
    yield from (f"{key:<40}: {value}" for key, value in running.properties.items())
    yield from ("", "", "#Consumer Subscription#")
    for number, each in enumerate(running.subscriptions, 1):
        kind = show_bool(each.class_filter)
        yield f"{number:03} Topic: {each.topic:<40} ClassFilter: {kind:<8} SubExpression: {each.expression}"
    yield from ("", "", "#Consumer Offset#", _form_queue("#Topic", "#Broker Name", "#QID", f"{'#Consumer Offset':<20}"))
    for held in running.queues:
        yield f"{held.topic:<32}  {held.broker:<32}  {held.queue:<4}  {held.committed:<20}"
    head = _form_queue("#Topic", "#Broker Name", "#QID", f"{'#ProcessQueueInfo':<20}")
    yield from ("", "", "#Consumer MQ Detail#", head)
    for held in running.queues:
        yield _form_queue(held.topic, held.broker, str(held.queue), _show_held(held))
    yield from ("", "", "#Consumer RT&TPS#")
    yield (
        f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} {'#ConsumeOK TPS':>14}"
        f" {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}"
    )
    yield from map(_show_pace, running.paces)
    if running.stack:
        yield from ("", "", "#Consumer jstack#", running.stack)


def _form_queue(topic: str, broker: str, queue: str, rest: str) -> str:
    return f"{topic:<64}  {broker:<32}  {queue:<4}  {rest}"


def _show_held(held: HeldQueue) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={held.committed}, cachedMsgMinOffset={held.cached_from},"
        f" cachedMsgMaxOffset={held.cached_to}, cachedMsgCount={held.cached}, cachedMsgSizeInMiB={held.cached_mib},"
        " transactionMsgMinOffset=0, transactionMsgMaxOffset=0, transactionMsgCount=0,"
        f" locked={show_bool(held.locked)}, tryUnlockTimes={held.unlock_tries},"
        f" lastLockTimestamp={show_time_compact(held.locked_at)}, droped={show_bool(held.dropped)},"
        f" lastPullTimestamp={show_time_compact(held.pulled_at)},"
        f" lastConsumeTimestamp={show_time_compact(held.consumed_at)}]"
    )


def _show_pace(pace: TopicPace) -> str:
    pull, handling = pace.pull_time / _MS, pace.handling_time / _MS
    return (
        f"{pace.topic:<32}  {pull:>14.2f} {pace.pull_rate:>14.2f} {handling:>14.2f} {pace.done_rate:>14.2f}"
        f" {pace.failed_rate:>18.2f} {pace.failed_hour:>25}"
    )


# --- what is wrong --------------------------------------------------------------------------------------------------


def is_push(running: RunningInfo) -> bool:
    """Whether a consumer has a handler that its library calls."""
    return running.properties.get("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY") == "CONSUME_PASSIVELY"


def have_same_subscriptions(members: Mapping[str, RunningInfo]) -> bool:
    """Whether all members of a group are subscribed to the same; members that have just started are not judged."""
    first = members[min(members)]
    age = datetime.now(UTC) - (first.started_at or _NEVER)
    if not is_push(first) or age <= _SETTLED:
        return True
    wanted = _list_subscriptions(first)
    return bool(wanted) and all(_list_subscriptions(member) == wanted for member in members.values())


def _list_subscriptions(running: RunningInfo) -> set[tuple[str, str, str]]:
    return {(each.topic, each.expression, each.kind) for each in running.subscriptions}


def list_complaints(client_id: str, running: RunningInfo) -> Iterator[str]:
    """Yield the queues of a member that it may be stuck in."""
    if not is_push(running):
        return
    now = datetime.now(UTC)
    ordered = running.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    for held in running.queues:
        where = f"{client_id} {show_queue(held.topic, held.broker, held.queue)}"
        if not ordered:
            idle = now - (held.consumed_at or _NEVER)
            if idle > _STUCK and held.cached > 0:
                yield f"{where} can't consume for a while, maybe blocked, {round(idle / _MS)}ms"
        elif not held.locked:
            waiting = now - (held.locked_at or _NEVER)
            yield f"{where} can't lock for a while, {round(waiting / _MS)}ms"
        elif held.dropped and held.unlock_tries > 0:
            yield f"{where} unlock {held.unlock_tries} times, still failed"
