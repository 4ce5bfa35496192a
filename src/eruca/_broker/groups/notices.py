"""Notifying the members of a consumer group that it changed, so that they rebalance."""

from __future__ import annotations

import asyncio
from functools import partial

from eruca._broker.groups.clients import ConsumerGroup
from eruca._broker.groups.groups import Groups
from eruca._broker.options import LiveOptions
from eruca._net.link import Link
from eruca._net.turns import find_turns
from eruca._wire.codes import RequestCode
from eruca._wire.frame import encode_command, make_request
from eruca._wire.headers import ConsumerGroupHeader

# A write takes about 10 us.
_TOLD_AT_ONCE = 100


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


def _send_to(links: list[Link], notice: bytes) -> None:
    """Send the same frame to many connections, a few in each iteration of the loop."""
    for link in links[:_TOLD_AT_ONCE]:
        link.send(notice)
    if len(links) > _TOLD_AT_ONCE:
        find_turns(asyncio.get_running_loop()).call(partial(_send_to, links[_TOLD_AT_ONCE:], notice))
