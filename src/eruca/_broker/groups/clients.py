"""Connected producers and consumers by group, as reported by their heartbeats.

A member is a connection: the same client id on two connections is two members until one of them closes. When a consumer
group changes, the broker notifies every member, so that they rebalance the queues. Changes in quick succession are
combined into one notification (`Gathering`). The cost of a change does not depend on the number of members.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice

from eruca._broker.groups.clientids import ClientIds
from eruca._ground.clock import Clock
from eruca._ground.limits import HEARTBEATS_BYTES_MAX
from eruca._net.budget import Account
from eruca._net.guards import Reporter
from eruca._net.link import Link
from eruca._wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerIds,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    encode_json,
)
from eruca._wire.codes import Language
from eruca._wire.names import RETRY_PREFIX

log = logging.getLogger(__name__)

# Memory of one member and of one subscription besides its texts, and of one tag and its code.
_MEMBER_BYTES = 1024
_SUBSCRIPTION_BYTES = 512
_TAG_BYTES = 96
# The first change is announced at once; later ones are gathered for this long. Every notified member asks for the full
# member list, so large groups are notified less often.
_GATHER_SECONDS = 0.1
_GATHER_SECONDS_MEMBER = 0.0005
_GATHER_SECONDS_MAX = 5.0
# Problems of a group that are listed, and subscriptions that one of them quotes: peers choose both.
_PROBLEMS_MAX = 20
_SHOWN_MAX = 5
_SHOWN_CHARS_MAX = 200
# Limits the log lines about problems of groups: one heartbeat can bring thousands of groups.
_PROBLEMS_A_MINUTE_MAX = 64


@dataclass(slots=True, eq=False)
class Member:
    """One connection in a group."""

    link: Link
    client_id: str
    language: Language
    version: int
    # By the monotonic clock.
    last_seen_s: float
    # This member's latest subscriptions; all members of a group must have the same ones.
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    # Estimated memory in bytes.
    weight: int = 0
    # The account of its heartbeat; None without accounts.
    account: str | None = None


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group and their current settings."""

    name: str
    members: dict[Link, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    # The members of each client id, in order of arrival.
    _by_id: dict[str, dict[Link, Member]] = field(default_factory=dict)
    _ids_twice: set[str] = field(default_factory=set)
    # How many members subscribe to a topic with which expression.
    _expressions: dict[str, Counter[str | None]] = field(default_factory=dict)
    _ids_body: bytes | None = None

    def put(self, member: Member) -> None:
        """Add a new member."""
        self.members[member.link] = member
        same = self._by_id.setdefault(member.client_id, {})
        same[member.link] = member
        if len(same) > 1:
            self._ids_twice.add(member.client_id)
        self._ids_body = None

    def remove(self, link: Link) -> Member | None:
        """Remove a member; return it if it was there."""
        member = self.members.pop(link, None)
        if member is None:
            return None
        self.subscribe(member, {})
        same = self._by_id[member.client_id]
        del same[link]
        if len(same) <= 1:
            self._ids_twice.discard(member.client_id)
        if not same:
            del self._by_id[member.client_id]
        self._ids_body = None
        return member

    def subscribe(self, member: Member, subscriptions: dict[str, SubscriptionData]) -> None:
        """Record a member's current subscriptions."""
        for topic, item in member.subscriptions.items():
            texts = self._expressions[topic]
            texts[item.sub_string] -= 1
            if not texts[item.sub_string]:
                del texts[item.sub_string]
            if not texts:
                del self._expressions[topic]
        for topic, item in subscriptions.items():
            self._expressions.setdefault(topic, Counter())[item.sub_string] += 1
        member.subscriptions = subscriptions

    def client_ids(self) -> list[str]:
        """The ids of the members; an id on two connections is listed twice, as in Java."""
        return [member.client_id for member in self.members.values()]

    def encode_ids(self) -> bytes:
        """Return the encoded ids; encoded once per change, because all members ask after it."""
        if self._ids_body is None:
            self._ids_body = encode_json(ConsumerIds(consumer_id_list=self.client_ids()))
        return self._ids_body

    def find(self, client_id: str) -> Member | None:
        """Return the member with a client id."""
        return next(iter(self._by_id.get(client_id, {}).values()), None)

    def problems(self) -> list[str]:
        """List problems of the group: duplicate ids, members with differing subscriptions. Both are cut if long."""
        found: list[str] = []
        for twice in nsmallest(_PROBLEMS_MAX, self._ids_twice):
            found.append(
                f"client id {twice} is on {len(self._by_id[twice])} connections: each needs its own instance name"
            )
        # Some clients add their retry topic one heartbeat later, which is not a conflict.
        for topic in sorted([topic for topic in self._expressions if not topic.startswith(RETRY_PREFIX)]):
            texts = self._expressions[topic]
            kinds = len(texts) + (texts.total() < len(self.members) and None not in texts)
            if kinds < 2:
                continue
            if len(found) >= _PROBLEMS_MAX:
                found.append("there are more")
                break
            shown = sorted([_quote(text) for text in islice(texts, _SHOWN_MAX) if text is not None])
            shown += ["nothing"] if kinds > len(texts) or None in texts else []
            more = f" and {kinds - len(shown)} more" if kinds > len(shown) else ""
            found.append(f"members subscribe to topic {topic} differently: {', '.join(shown)}{more}")
        return found


def _quote(expression: str) -> str:
    is_long = len(expression) > _SHOWN_CHARS_MAX
    return repr(expression[:_SHOWN_CHARS_MAX] + "..." if is_long else expression)


class Gathering:
    """Calls a function for each changed group: at once, and then once for all further changes within an interval."""

    def __init__(self, settle: Callable[[str, bool], int]) -> None:
        # Called with the group and whether its members are to be notified; returns the number of members.
        self._settle = settle
        # Groups that were settled within their interval: None, or whether to notify the members at its end.
        self._resting: dict[str, bool | None] = {}

    def mark(self, group: str, *, tell: bool) -> None:
        """Record that a group changed."""
        if group in self._resting:
            self._resting[group] = tell or bool(self._resting[group])
            return
        self._resting[group] = None
        members = self._settle(group, tell)
        seconds = min(_GATHER_SECONDS_MAX, _GATHER_SECONDS + members * _GATHER_SECONDS_MEMBER)
        asyncio.get_running_loop().call_later(seconds, self._end_rest, group)

    def _end_rest(self, group: str) -> None:
        tell = self._resting.pop(group)
        if tell is not None:
            self.mark(group, tell=tell)


@dataclass(slots=True)
class _Joined:
    """The groups of one connection; dicts to keep their order."""

    producers: dict[str, None] = field(default_factory=dict)
    consumers: dict[str, None] = field(default_factory=dict)


class Clients:
    """All producers and consumers."""

    def __init__(
        self,
        clock: Clock,
        tell_members: Callable[[ConsumerGroup], None],
        heartbeats_bytes_max: int = HEARTBEATS_BYTES_MAX,
    ) -> None:
        """`tell_members` is called when the members or topics of a group change; rapid changes make one call."""
        self._clock = clock
        self._tell_members = tell_members
        self.producers: dict[str, dict[Link, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._joined: dict[Link, _Joined] = {}
        # Connections that are to be told about new topics; dict to keep their order.
        self.topic_watchers: dict[Link, None] = {}
        self._producers_by_id: dict[str, dict[tuple[str, Link], Member]] = {}
        self._ids = ClientIds(clock)
        self._gathering = Gathering(self._settle)
        self.account = Account("heartbeats", heartbeats_bytes_max, "maxHeartbeatBytes")
        self._reported: dict[str, tuple[str, ...]] = {}
        self._reporter = Reporter(log, lines_max=_PROBLEMS_A_MINUTE_MAX)
        # Groups with duplicate ids or mismatched subscriptions, for metrics and the console.
        self.conflicts: dict[str, list[str]] = {}

    # -- joining -----------------------------------------------------------------------------------------------------

    def register_producer(self, group: str, link: Link, client_id: str, language: Language, version: int) -> None:
        """Record a heartbeat of a producer. Raises RequestRefused if its client id is that of another account."""
        known = self.producers.get(group, {}).get(link)
        if known is None:
            account = link.account
            self._ids.claim(client_id, account)
            weight = _MEMBER_BYTES + len(group) + len(client_id)
            now = self._clock.monotonic()
            member = Member(link, client_id, language, version, now, weight=weight, account=account)
            self.producers.setdefault(group, {})[link] = member
            self._producers_by_id.setdefault(client_id, {})[group, link] = member
            self._joined.setdefault(link, _Joined()).producers[group] = None
            self.account.add(link, weight)
        else:
            known.last_seen_s = self._clock.monotonic()

    def register_consumer(
        self, data: ConsumerData, link: Link, client_id: str, language: Language, version: int
    ) -> ConsumerGroup:
        """Record a heartbeat of a consumer and its subscriptions."""
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        member = group.members.get(link)
        changed = member is None
        if member is None:
            member = Member(link, client_id, language, version, 0)
            group.put(member)
            self._joined.setdefault(link, _Joined()).consumers[group.name] = None
        member.last_seen_s = self._clock.monotonic()
        if data.eruca_new_topics:
            self.topic_watchers[link] = None
        wanted = {item.topic: item for item in data.subscription_data_set}
        # Do not keep an equal object twice.
        is_new = wanted != member.subscriptions
        if is_new or changed:
            group.subscribe(member, wanted)
            before, member.weight = member.weight, _weigh(member, group.name)
            self.account.add(link, member.weight - before)
        changed |= self._update_subscriptions(group, member.subscriptions.values())
        # Members are not notified when an expression changes (as in Java), but operators are.
        if changed or is_new:
            self._gathering.mark(group.name, tell=changed)
        return group

    @staticmethod
    def _update_subscriptions(group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        """Apply the subscriptions of a heartbeat: new topics, newer versions, and removed topics."""
        changed = False
        topics = set()
        for item in wanted:
            topics.add(item.topic)
            known = group.subscriptions.get(item.topic)
            if known is None:
                changed = True
                group.subscriptions[item.topic] = item
            elif item.sub_version > known.sub_version:
                group.subscriptions[item.topic] = item
        for topic in group.subscriptions.keys() - topics:
            changed = True
            del group.subscriptions[topic]
        return changed

    def _settle(self, name: str, tell: bool) -> int:
        """Check a changed group for problems, and notify its members."""
        group = self.consumers.get(name)
        if group is None:
            return 0
        self._report(group)
        if tell:
            self._tell_members(group)
        return len(group.members)

    def _report(self, group: ConsumerGroup) -> None:
        """Log new problems of a group once."""
        problems = tuple(group.problems())
        if problems:
            self.conflicts[group.name] = list(problems)
        else:
            self.conflicts.pop(group.name, None)
        if self._reported.get(group.name, ()) != problems:
            self._reported[group.name] = problems
            for problem in problems:
                self._reporter.report("groups", f"group {group.name}: {problem}")

    # -- leaving -----------------------------------------------------------------------------------------------------

    def unregister(self, link: Link, client_id: str, producer_group: str | None, consumer_group: str | None) -> None:
        """Remove a client from groups."""
        weight = 0
        if producer_group is not None:
            weight += self._drop_producer(producer_group, link)
        if consumer_group is not None:
            weight += self._drop_consumer(consumer_group, link)
        self.account.add(link, -weight)
        joined = self._joined.get(link)
        if joined is not None:
            joined.producers.pop(producer_group or "", None)
            joined.consumers.pop(consumer_group or "", None)
            if not joined.consumers:
                self.topic_watchers.pop(link, None)

    def drop_link(self, link: Link) -> None:
        """Remove the members of a closed connection."""
        self.account.leave(link)
        self.topic_watchers.pop(link, None)
        joined = self._joined.pop(link, None)
        if joined is None:
            return
        for group in joined.producers:
            self._drop_producer(group, link)
        for group in joined.consumers:
            self._drop_consumer(group, link)

    def expire(self, timeout_ms: int) -> None:
        """Remove members without heartbeats, and close their connections."""
        before = self._clock.monotonic() - timeout_ms / 1000
        everyone = [member for members in self.producers.values() for member in members.values()]
        everyone += [member for group in self.consumers.values() for member in group.members.values()]
        for member in everyone:
            if member.last_seen_s < before:
                link = member.link
                text = f"client {member.client_id} at {link.peer} sent no heartbeat and was removed"
                self._reporter.report_peer(link.peer_host[0], text)
                member.link.close()
                self.drop_link(member.link)

    def _drop_producer(self, group: str, link: Link) -> int:
        members = self.producers.get(group)
        member = None if members is None else members.pop(link, None)
        if members is None or member is None:
            return 0
        if not members:
            del self.producers[group]
        same = self._producers_by_id[member.client_id]
        del same[group, link]
        if not same:
            del self._producers_by_id[member.client_id]
        self._ids.release(member.client_id, member.account)
        return member.weight

    def _drop_consumer(self, name: str, link: Link) -> int:
        group = self.consumers.get(name)
        member = None if group is None else group.remove(link)
        if group is None or member is None:
            return 0
        if not group.members:
            del self.consumers[name]
            self._reported.pop(name, None)
            self.conflicts.pop(name, None)
        else:
            self._gathering.mark(name, tell=True)
        return member.weight

    # -- finding -----------------------------------------------------------------------------------------------------

    def consumer(self, group: str) -> ConsumerGroup | None:
        """Return a consumer group that has members."""
        return self.consumers.get(group)

    def find_producer(self, client_id: str) -> Member | None:
        """Find a producer by client id, in any group."""
        for member in self._producers_by_id.get(client_id, {}).values():
            if member.link.is_open:
                return member
        return None

    def groups_of_topic(self, topic: str) -> list[str]:
        """List the consumer groups that subscribe to a topic."""
        return [group.name for group in self.consumers.values() if topic in group.subscriptions]


def _weigh(member: Member, group: str) -> int:
    """Estimate the memory of a consumer group member in bytes."""
    weight = _MEMBER_BYTES + len(member.client_id) + len(group)
    for item in member.subscriptions.values():
        texts = (item.sub_string, item.filter_class_source, item.topic, item.expression_type)
        weight += _SUBSCRIPTION_BYTES + sum([len(text) for text in texts if text is not None])
        weight += _TAG_BYTES * max(len(item.tags_set), len(item.code_set)) + sum(map(len, item.tags_set))
    return weight
