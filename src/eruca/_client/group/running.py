"""What a consumer reports to operators: its settings, its queues, its rates, and the stacks of its threads."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import CoroutineType, FrameType
from typing import Any

from eruca._client.group.inbox import Inbox
from eruca._client.group.observing import ConsumeObserver
from eruca._client.group.settings import GroupSettings
from eruca._client.group.starting import describe_start
from eruca._client.group.subscriptions import Subscription
from eruca._client.session.session import Session
from eruca._core.allocation import find_strategy
from eruca._wire.bodies import ConsumerData, ConsumerRunningInfo, ConsumeType, MessageModel, MessageQueue


def describe_member(
    group: str,
    consume_type: ConsumeType,
    settings: GroupSettings,
    subscriptions: Iterable[Subscription],
    *,
    has_patterns: bool,
) -> ConsumerData:
    """Return what heartbeats contain about a consumer."""
    return ConsumerData(
        consume_from_where=describe_start(settings.start),
        consume_type=consume_type,
        eruca_new_topics=has_patterns or None,
        group_name=group,
        message_model=MessageModel.BROADCASTING if settings.broadcast else MessageModel.CLUSTERING,
        subscription_data_set=[subscription.data for subscription in subscriptions],
    )


def describe_running(
    session: Session,
    group: str,
    consume_type: ConsumeType,
    settings: GroupSettings,
    subscriptions: Iterable[Subscription],
    inboxes: Mapping[MessageQueue, Inbox],
    observer: ConsumeObserver,
    *,
    started_ms: int,
    ordered: bool = False,
    concurrency: int = 0,
    stacks: bool,
) -> ConsumerRunningInfo:
    """Return the answer to an operator's request for the state of a consumer."""
    now, now_ms = asyncio.get_running_loop().time(), session.clock.now_ms()
    known = list(subscriptions)
    return ConsumerRunningInfo(
        properties={
            "PROP_CLIENT_VERSION": "V4_9_7",
            "PROP_CONSUME_TYPE": consume_type.value,
            "PROP_NAMESERVER_ADDR": session.options.nameservers,
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            "PROP_CONSUME_ORDERLY": str(ordered).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
            "consumerGroup": group,
            "messageModel": "BROADCASTING" if settings.broadcast else "CLUSTERING",
            "allocateMessageQueueStrategy": find_strategy(settings.rebalance.strategy).name,
        },
        subscription_set=[subscription.data for subscription in known],
        mq_table={queue: inbox.describe(now, now_ms) for queue, inbox in inboxes.items()},
        status_table={subscription.topic: observer.read(subscription.topic) for subscription in known},
        jstack=format_stacks() if stacks else None,
    )


def format_stacks() -> str:
    """Return the stacks of all threads and tasks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
    for task in asyncio.all_tasks():
        frames = "".join(["".join(traceback.format_stack(frame, limit=1)) for frame in _list_frames(task)])
        parts.append(f"task {task.get_name()}\n{frames}")
    return "\n".join(parts)


def _list_frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Yield the frames of a task down to where it waits; the task itself only knows the outermost."""
    waiting: Any = task.get_coro()
    while isinstance(waiting, CoroutineType):
        if waiting.cr_frame is not None:
            yield waiting.cr_frame
        waiting = waiting.cr_await
