"""Notices to clients: the members of a group changed, so that they rebalance; topics were created."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial

from eruca._broker.groups.clients import Clients, ConsumerGroup
from eruca._broker.groups.groups import Groups
from eruca._broker.options import LiveOptions
from eruca._ground.repeating import Repeating
from eruca._net.link import Link
from eruca._net.turns import find_turns
from eruca._wire.bodies import TopicList, encode_json
from eruca._wire.codes import RequestCode
from eruca._wire.frame import encode_command, make_request
from eruca._wire.headers import ConsumerGroupHeader, EmptyHeader
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX

# A write takes about 10 us.
_TOLD_AT_ONCE = 100
# The first new topic is told at once. Those that follow within this time are told together; with many clients it is
# longer.
_REST_S = 0.1
_REST_S_CLIENT = 0.0005
_TOPICS_AT_ONCE = 1000


class GroupNotices:
    """Notifies members, unless disabled for the broker or the group."""

    def __init__(self, options: LiveOptions, groups: Groups) -> None:
        self._options = options
        self._groups = groups

    def tell(self, group: ConsumerGroup) -> None:
        """Notify all members of a group."""
        config = self._groups.find(group.name)
        allowed = config is None or config.notify_consumer_ids_changed_enable
        if not self._options.now.notify_group_changes or not allowed:
            return
        header = ConsumerGroupHeader(consumer_group=group.name)
        notice = encode_command(make_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))
        _send_to(list(group.members), notice)


class TopicNotices:
    """Tells the clients that have asked for it which topics were created: those that subscribe by pattern."""

    def __init__(self, clients: Clients, announce: Callable[[], Awaitable[None]]) -> None:
        """`announce` returns when the name servers know the topics, so that clients can ask them for their routes."""
        self._clients = clients
        self._announce = announce
        self._created: list[str] = []
        self._telling = Repeating("telling clients about new topics", self._tell, lambda: math.inf)

    def start(self) -> None:
        """Tell clients from now on."""
        self._telling.start()

    async def stop(self) -> None:
        """Tell nothing more."""
        await self._telling.stop()

    def note(self, topic: str) -> None:
        """Tell clients about a new topic."""
        if self._clients.topic_watchers and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            self._created.append(topic)
            self._telling.wake()

    async def _tell(self) -> float | None:
        created, self._created = self._created[:_TOPICS_AT_ONCE], self._created[_TOPICS_AT_ONCE:]
        if not created:
            return None
        await self._announce()
        body = encode_json(TopicList(topic_list=created))
        watchers = list(self._clients.topic_watchers)
        _send_to(watchers, encode_command(make_request(RequestCode.TOPICS_CREATED, EmptyHeader(), body, oneway=True)))
        await asyncio.sleep(_REST_S + len(watchers) * _REST_S_CLIENT)
        return 0.0 if self._created else None


def _send_to(links: list[Link], notice: bytes) -> None:
    """Send the same frame to many connections, a few in each iteration of the loop."""
    for link in links[:_TOLD_AT_ONCE]:
        link.send(notice)
    if len(links) > _TOLD_AT_ONCE:
        find_turns(asyncio.get_running_loop()).call(partial(_send_to, links[_TOLD_AT_ONCE:], notice))
