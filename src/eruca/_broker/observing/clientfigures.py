"""Asks connected consumers about themselves, as rocketmq-exporter does: how fast they pull and handle messages.

Only while somebody collects metrics, once a minute, a few at a time. A consumer that does not answer is left out until
the next round.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, NamedTuple

from eruca._broker.groups.clients import Clients, ConsumerGroup, Member
from eruca._broker.options import LiveOptions
from eruca._ground.clock import Clock
from eruca._ground.repeating import Repeating
from eruca._ground.several import run_some
from eruca._net.handlers import decode_apart
from eruca._wire.bodies import ConsumerRunningInfo, ConsumeStatus
from eruca._wire.codes import VERSION_3_1_8_SNAPSHOT, RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import ConsumerRunningInfoHeader
from eruca.errors import NetError, RequestRefused, WireError

log = logging.getLogger(__name__)

# As often as the exporter.
INTERVAL_S: Final = 60.0
# They are asked for this long after metrics were last collected.
_WANTED_S: Final = 300.0
_TIMEOUT_S: Final = 3.0
_AT_ONCE: Final = 8
_MEMBERS_MAX: Final = 2000


class MemberStatus(NamedTuple):
    """How fast one consumer handles one topic."""

    group: str
    topic: str
    client_id: str
    address: str
    status: ConsumeStatus


class ClientFigures:
    """Keeps the last answers of consumers."""

    def __init__(self, options: LiveOptions, clock: Clock, clients: Clients, *, interval_s: float = INTERVAL_S) -> None:
        self._options = options
        self._clock = clock
        self._clients = clients
        self._wanted_until = 0.0
        #: The answers of the last round, and how many consumers were not asked in it.
        self.found: list[MemberStatus] = []
        self.left_out = 0
        self._asking = Repeating("asking consumers about themselves", self._ask_all, lambda: interval_s, at_once=True)

    def want(self) -> None:
        """Metrics are being collected: keep asking for some minutes; needs a running loop."""
        if self._options.now.asks_clients:
            self._wanted_until = self._clock.monotonic() + _WANTED_S
            self._asking.start()

    async def stop(self) -> None:
        """End."""
        await self._asking.stop()

    async def _ask_all(self) -> None:
        if self._clock.monotonic() >= self._wanted_until or not self._options.now.asks_clients:
            self.found, self.left_out = [], 0
            return
        groups = list(self._clients.consumers.values())
        members = [(group, member) for group in groups for member in group.members.values()]
        asked = members[:_MEMBERS_MAX]
        found: list[MemberStatus] = []
        await run_some([partial(self._ask, group, member, found) for group, member in asked], _AT_ONCE)
        self.found, self.left_out = found, len(members) - len(asked)

    @staticmethod
    async def _ask(group: ConsumerGroup, member: Member, found: list[MemberStatus]) -> None:
        if member.version < VERSION_3_1_8_SNAPSHOT or not member.link.is_open:
            return
        header = ConsumerRunningInfoHeader(consumer_group=group.name, client_id=member.client_id, jstack_enable=False)
        try:
            answer = await member.link.call(make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header), _TIMEOUT_S)
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                return
            info = await decode_apart(ConsumerRunningInfo, answer.body)
        except (NetError, WireError, RequestRefused) as error:
            log.debug("%s at %s does not describe itself: %s", member.client_id, member.link.peer, error)
            return
        # Not what it likes to name: labels are topics that the group subscribes to.
        found += [
            MemberStatus(group.name, topic, member.client_id, member.link.peer, status)
            for topic, status in info.status_table.items()
            if topic in group.subscriptions
        ]
