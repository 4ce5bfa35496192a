"""Who is connected: producers and consumers by group, as their heartbeats tell.

A member is a connection: the same client id on two connections is two members until one of them closes. The broker
tells every member of a consumer group when the group changes, so that they share the queues anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from eruca.clock import Clock
from eruca.net.link import Link
from eruca.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from eruca.wire.codes import Language
from eruca.wire.names import RETRY_PREFIX

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Member:
    """One connection in a group."""

    link: Link
    client_id: str
    language: Language
    version: int
    last_seen_ms: int
    # Members of one group must subscribe alike; what this one last said.
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group and what they agreed on last."""

    name: str
    members: dict[Link, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def client_ids(self) -> list[str]:
        """The ids of the members; one on two connections is there twice, as in Java."""
        return [member.client_id for member in self.members.values()]

    def find(self, client_id: str) -> Member | None:
        """The member with a client id."""
        for member in self.members.values():
            if member.client_id == client_id:
                return member
        return None

    def problems(self) -> list[str]:
        """What is wrong with the group: ids that are there twice, members that subscribe differently."""
        found: list[str] = []
        ids = self.client_ids()
        for twice in sorted({client_id for client_id in ids if ids.count(client_id) > 1}):
            found.append(
                f"client id {twice} is on {ids.count(twice)} connections: each needs an instance name of its own"
            )
        # Some clients add their retry topic a heartbeat later, which is no conflict.
        topics = {topic for member in self.members.values() for topic in member.subscriptions}
        for topic in sorted([topic for topic in topics if not topic.startswith(RETRY_PREFIX)]):
            texts = {
                member.subscriptions[topic].sub_string if topic in member.subscriptions else None
                for member in self.members.values()
            }
            if len(texts) > 1:
                shown = ", ".join(sorted("nothing" if text is None else repr(text) for text in texts))
                found.append(f"members subscribe topic {topic} differently: {shown}")
        return found


class Clients:
    """All producers and consumers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.producers: dict[str, dict[Link, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        # Called when the members or the subscriptions of a consumer group changed.
        self.on_group_change: Callable[[ConsumerGroup], None] = lambda _: None
        # Called when a consumer group lost its last member.
        self.on_group_gone: Callable[[str], None] = lambda _: None
        self._reported: dict[str, tuple[str, ...]] = {}
        # Groups with duplicate ids or mismatched subscriptions, for metrics and the console.
        self.conflicts: dict[str, list[str]] = {}

    # -- coming ------------------------------------------------------------------------------------------------------

    def register_producer(self, group: str, link: Link, client_id: str, language: Language, version: int) -> None:
        """A producer is alive."""
        members = self.producers.setdefault(group, {})
        known = members.get(link)
        if known is None:
            members[link] = Member(link, client_id, language, version, self._clock.now_ms())
        else:
            known.last_seen_ms = self._clock.now_ms()

    def register_consumer(
        self, data: ConsumerData, link: Link, client_id: str, language: Language, version: int
    ) -> ConsumerGroup:
        """A consumer is alive and wants these topics."""
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        member = group.members.get(link)
        changed = member is None
        if member is None:
            member = group.members[link] = Member(link, client_id, language, version, 0)
        member.last_seen_ms = self._clock.now_ms()
        before, member.subscriptions = member.subscriptions, {item.topic: item for item in data.subscription_data_set}
        changed |= self._update_subscriptions(group, data.subscription_data_set)
        # Members are not told of an expression that changed (Java does not), but operators are.
        if changed or before != member.subscriptions:
            self._report(group)
        if changed:
            self.on_group_change(group)
        return group

    @staticmethod
    def _update_subscriptions(group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        """Take over what a heartbeat says: new topics, newer versions, and topics that are gone."""
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

    def _report(self, group: ConsumerGroup) -> None:
        """Say once what is wrong with a group."""
        problems = tuple(group.problems())
        if problems:
            self.conflicts[group.name] = list(problems)
        else:
            self.conflicts.pop(group.name, None)
        if self._reported.get(group.name, ()) != problems:
            self._reported[group.name] = problems
            for problem in problems:
                log.warning("group %s: %s", group.name, problem)

    # -- going -------------------------------------------------------------------------------------------------------

    def unregister(self, link: Link, client_id: str, producer_group: str | None, consumer_group: str | None) -> None:
        """A client leaves groups."""
        if producer_group is not None:
            self._drop_producer(producer_group, link)
        if consumer_group is not None:
            self._drop_consumer(consumer_group, link)

    def drop_link(self, link: Link) -> None:
        """A connection closed."""
        for group in [name for name, members in self.producers.items() if link in members]:
            self._drop_producer(group, link)
        for group in [name for name, consumers in self.consumers.items() if link in consumers.members]:
            self._drop_consumer(group, link)

    def expire(self, timeout_ms: int) -> None:
        """Forget members without heartbeat, and close their connections."""
        before = self._clock.now_ms() - timeout_ms
        everyone = [member for members in self.producers.values() for member in members.values()]
        everyone += [member for group in self.consumers.values() for member in group.members.values()]
        for member in everyone:
            if member.last_seen_ms < before:
                log.warning("client %s at %s sent no heartbeat and is forgotten", member.client_id, member.link.peer)
                member.link.close()
                self.drop_link(member.link)

    def _drop_producer(self, group: str, link: Link) -> None:
        members = self.producers.get(group)
        if members is not None:
            members.pop(link, None)
            if not members:
                del self.producers[group]

    def _drop_consumer(self, name: str, link: Link) -> None:
        group = self.consumers.get(name)
        if group is None or group.members.pop(link, None) is None:
            return
        if not group.members:
            del self.consumers[name]
            self._reported.pop(name, None)
            self.conflicts.pop(name, None)
            self.on_group_gone(name)
        else:
            self._report(group)
        self.on_group_change(group)

    # -- finding -----------------------------------------------------------------------------------------------------

    def consumer(self, group: str) -> ConsumerGroup | None:
        """A consumer group that has members."""
        return self.consumers.get(group)

    def find_producer(self, client_id: str) -> Member | None:
        """A producer by client id, whatever its group."""
        for members in self.producers.values():
            for member in members.values():
                if member.client_id == client_id and member.link.is_open:
                    return member
        return None

    def groups_of_topic(self, topic: str) -> list[str]:
        """Consumer groups that subscribe a topic now."""
        return [group.name for group in self.consumers.values() if topic in group.subscriptions]
