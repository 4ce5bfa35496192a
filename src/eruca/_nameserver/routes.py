"""Route tables: which brokers are alive, where they listen, and which queues of a topic they have. No I/O.

A broker has a name, and under that name one address for each id: 0 is the master, others are its slaves. Queues belong
to the name. Times are monotonic seconds passed in by the caller; a link is any object that represents the connection a
broker registered on.

Masters of Eruca register with an epoch, which every promotion increments. A master that was replaced and does not know
it yet is refused, so that producers are never sent back to it. Masters also register the identity of their store: a
broker of another store cannot take the name while its master is registered. Java's brokers have no epoch; among
themselves the last one that registers is the master, as in Java.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from eruca._ground.limits import (
    MEMBERS_MAX,
    RECORD_TOPIC_BYTES_MAX,
)
from eruca._nameserver.masterships import Leading, Masterships
from eruca._nameserver.naming import check_names
from eruca._nameserver.options import NameServerOptions
from eruca._net.guards import Reporter
from eruca._net.meters import count_refused, show
from eruca._wire.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicList,
    TopicRouteData,
)
from eruca._wire.codes import ResponseCode
from eruca._wire.headers import BrokerHeader, RegisterBrokerAnswerHeader, RegisterBrokerHeader
from eruca._wire.names import MASTER_ID, READ, WRITE, check_topic
from eruca._wire.sysflag import TOPIC_UNIT, TOPIC_UNIT_SUBSCRIBED
from eruca.errors import InvalidName, RequestRefused

log = logging.getLogger(__name__)

# Queues of gone brokers that are removed in one go: about 0.5 ms.
_DROPPED_AT_ONCE: Final = 1000
# How many of the brokers that disappear together are named in the log.
_GONE_NAMED_MAX: Final = 10


@dataclass(slots=True)
class LiveBroker:
    """What is known about one address besides its name: the version of its topics, and when it was last heard from."""

    data_version: DataVersion
    updated: float
    link: object
    ha_address: str
    # The epoch of its mastership; None for slaves and for Java's brokers.
    epoch: int | None = None
    # The identity of its store, if it has one.
    store: str | None = None


class RouteTables:
    """Everything a name server knows about brokers and topics.

    `when_many_left` is called when a broker is gone and removing all its queues at once would take long. Then
    `drop_some` must be called until it returns False. Without it, all are removed at once.
    """

    def __init__(
        self,
        when_many_left: Callable[[], None] | None = None,
        options: Callable[[], NameServerOptions] = NameServerOptions,
    ) -> None:
        self._when_many_left = when_many_left
        self._options = options
        # Topic to broker name to queues.
        self._queues: dict[str, dict[str, QueueData]] = {}
        # Broker name to its addresses.
        self._brokers: dict[str, BrokerData] = {}
        # Cluster to broker names; a dict for its order.
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[str, LiveBroker] = {}
        # Broker address to its filter servers.
        self._filter_servers: dict[str, list[str]] = {}
        # The highest epoch of a master by broker name; kept even if all members of the name are gone.
        self._masterships = Masterships()
        # Reverse indexes, so that nothing has to be searched when a broker leaves: the broker names of an address, the
        # topics and the clusters of a broker name.
        self._names: dict[str, set[str]] = {}
        self._topics: dict[str, set[str]] = {}
        self._clusters_of: dict[str, set[str]] = {}
        # The topics of gone broker names whose queues are still to be removed. Responses exclude them.
        self._leaving: dict[str, set[str]] = {}
        # Number of entries of a broker under a topic.
        self._entries = 0
        self._reporter = Reporter(log)
        show("brokers", "Number of broker names.", self, lambda it: len(it._brokers))
        show("route_entries", "Number of entries of a topic on a broker.", self, lambda it: it._entries)

    # -- brokers register --------------------------------------------------------------------------------------------

    def register(
        self,
        header: RegisterBrokerHeader,
        body: RegisterBrokerBody | None,
        link: object,
        now: float,
        *,
        with_filter_servers: bool = True,
        put_later: list[TopicConfig] | None = None,
    ) -> RegisterBrokerAnswerHeader:
        """Apply a registration; the response tells a slave where its master is.

        Changed topics are passed to `put_later`, if given, so that the caller can add many of them in slices.

        Only a master brings topics, and only when the version of its table is new. A topic that it no longer has stays
        until it is deleted here or the broker is gone. An Eruca broker sends only what changed since the version that
        this name server confirmed; if that version is no longer here, nothing is applied and the response reports it. A
        body without filter servers (`with_filter_servers`) leaves them unchanged. Raises RequestRefused for a master
        that was replaced.
        """
        body = body or RegisterBrokerBody()
        check_names(header, body)
        self._check_room(header)
        # Before anything is applied, including its epoch.
        if header.eruca_base and not self._has_version(header):
            return RegisterBrokerAnswerHeader(eruca_known="")
        name, address, number = header.broker_name, header.broker_addr, header.broker_id
        epoch = header.eruca_epoch if number == MASTER_ID else None
        if number == MASTER_ID:
            self._masterships.check(name, address, epoch, header.eruca_store, self._find_leading(name))
            if epoch is not None:
                self._masterships.note(name, epoch, self._brokers)
        for left in self._leaving.pop(name, ()):
            self._drop_queues(left, name)  # otherwise topics that it no longer has would reappear
        table = body.topic_config_serialize_wrapper
        self._clusters.setdefault(header.cluster_name, {})[name] = None
        self._clusters_of.setdefault(name, set()).add(header.cluster_name)
        broker = self._brokers.get(name)
        if broker is None:
            broker = self._brokers[name] = BrokerData(broker_name=name, cluster=header.cluster_name)
        addresses = broker.broker_addrs
        # A slave that became the master no longer has its old id.
        for other in [other for other, known in addresses.items() if known == address and other != number]:
            del addresses[other]
        # The topics of a promoted slave are new, although its version is not.
        is_first = number not in addresses or (epoch is not None and addresses[number] != address)
        if number == MASTER_ID and epoch is not None and addresses.get(MASTER_ID) != address:
            log.info("broker %s is now the master of %s, epoch %d", address, name, epoch)
        self._forget_name(addresses.get(number), name, broker)
        addresses[number] = address
        self._names.setdefault(address, set()).add(name)
        if number == MASTER_ID and (is_first or self._is_changed(address, table.data_version)):
            if put_later is not None:
                put_later += table.topic_config_table.values()
            else:
                for topic in table.topic_config_table.values():
                    self.put_queues(name, topic)
        if address not in self._live:
            log.info("broker %s registered: name %s, id %d, cluster %s", address, name, number, header.cluster_name)
        self._live[address] = LiveBroker(
            table.data_version, now, link, header.ha_server_addr, epoch, header.eruca_store
        )
        if with_filter_servers:
            if body.filter_server_list:
                self._filter_servers[address] = body.filter_server_list
            else:
                self._filter_servers.pop(address, None)
        answer = self._find_master(addresses) if number != MASTER_ID else RegisterBrokerAnswerHeader()
        if header.eruca_base is not None:
            answer.eruca_known = _describe_version(table.data_version)
        return answer

    def _check_room(self, header: RegisterBrokerHeader) -> None:
        """Refuse a broker, cluster or address beyond the limit."""
        broker = self._brokers.get(header.broker_name)
        most = self._options().brokers_max
        for kind, known, new in (
            ("broker names", self._brokers, header.broker_name),
            ("clusters", self._clusters, header.cluster_name),
            ("broker addresses", self._live, header.broker_addr),
        ):
            if new not in known and len(known) >= most:
                count_refused("maxBrokers")
                self._refuse_full(f"there are already {len(known)} {kind} (maxBrokers={most})")
        members = {} if broker is None else broker.broker_addrs
        if header.broker_id not in members and len(members) >= MEMBERS_MAX:
            self._refuse_full(f"there are already {MEMBERS_MAX} brokers named {header.broker_name}")

    def _refuse_full(self, reason: str) -> NoReturn:
        self._reporter.report("full", f"refused a broker: {reason}")
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{reason}, the maximum of this name server")

    def _has_version(self, header: RegisterBrokerHeader) -> bool:
        """Whether we have the version of a broker's table that its changes are based on."""
        broker, live = self._brokers.get(header.broker_name), self._live.get(header.broker_addr)
        return (
            broker is not None
            and live is not None
            and broker.broker_addrs.get(header.broker_id) == header.broker_addr
            and header.broker_name in self._clusters.get(header.cluster_name, {})
            and _describe_version(live.data_version) == header.eruca_base
        )

    def find_epoch(self, name: str) -> int | None:
        """Return the highest epoch of a master of a broker name."""
        return self._masterships.find(name)

    def _find_leading(self, name: str) -> Leading | None:
        """Return the master of a name, if it is alive and has an epoch."""
        broker = self._brokers.get(name)
        master = broker.broker_addrs.get(MASTER_ID) if broker is not None else None
        live = self._live.get(master) if master is not None else None
        return Leading(master, live.store) if master and live is not None and live.epoch is not None else None

    def _forget_name(self, address: str | None, name: str, broker: BrokerData) -> None:
        """Prepare for removing an address from a broker name, or for changing its id."""
        if address is not None and list(broker.broker_addrs.values()).count(address) <= 1:
            names = self._names.get(address)
            if names is not None:
                names.discard(name)
                if not names:
                    del self._names[address]

    def put_queues(self, broker_name: str, topic: TopicConfig) -> None:
        """Add the queues of a topic that a broker registered, unless the broker is gone."""
        if broker_name not in self._brokers:
            return
        name = topic.topic_name
        brokers = self._queues.get(name)
        if brokers is None or broker_name not in brokers:
            if not self._may_have(broker_name, name):
                return
            brokers = self._queues.setdefault(name, {})
            self._entries += 1
            self._topics.setdefault(broker_name, set()).add(name)
        brokers[broker_name] = QueueData(
            broker_name=broker_name,
            perm=topic.perm,
            read_queue_nums=topic.read_queue_nums,
            topic_sys_flag=topic.topic_sys_flag,
            write_queue_nums=topic.write_queue_nums,
        )

    def _may_have(self, broker_name: str, topic: str) -> bool:
        """Whether a broker may bring this topic. Its other topics are accepted in any case."""
        try:
            check_topic(topic, RECORD_TOPIC_BYTES_MAX)
        except InvalidName as error:
            self._reporter.report(broker_name, f"a topic of broker {broker_name} is ignored: {error}")
            return False
        most = self._options().route_entries_max
        if self._entries >= most:
            count_refused("maxRouteEntries")
            text = f"topic {topic} of broker {broker_name} is ignored: there are too many (maxRouteEntries={most})"
            self._reporter.report("full", text)
            return False
        return True

    def _find_master(self, addresses: dict[int, str]) -> RegisterBrokerAnswerHeader:
        master = addresses.get(MASTER_ID)
        live = self._live.get(master) if master is not None else None
        if live is None:
            return RegisterBrokerAnswerHeader()
        return RegisterBrokerAnswerHeader(live.ha_address, master)

    def _is_changed(self, address: str, data_version: DataVersion | None) -> bool:
        live = self._live.get(address)
        return live is None or live.data_version != data_version

    def query_data_version(
        self, address: str, data_version: DataVersion | None, now: float
    ) -> tuple[bool, DataVersion | None]:
        """Return whether a broker's table has changed, and the known version. If not, this is a sign of life."""
        live = self._live.get(address)
        changed = self._is_changed(address, data_version)
        if live is None:
            return changed, None
        if not changed:
            live.updated = now
        return changed, live.data_version

    # -- brokers leave -----------------------------------------------------------------------------------------------

    def unregister(self, header: BrokerHeader) -> None:
        """Remove a broker that unregisters."""
        if self._live.pop(header.broker_addr, None) is not None:
            log.info("broker %s unregistered: name %s", header.broker_addr, header.broker_name)
        self._filter_servers.pop(header.broker_addr, None)
        broker = self._brokers.get(header.broker_name)
        if broker is None:
            return
        leading = self._find_leading(header.broker_name)
        if header.broker_id == MASTER_ID and leading is not None and leading.address != header.broker_addr:
            return  # it was replaced: the registered master is another broker
        holder = broker.broker_addrs.get(header.broker_id)
        if header.broker_id != MASTER_ID and holder != header.broker_addr and holder in self._live:
            return  # two slaves had the same id, and the other one is registered
        self._forget_name(broker.broker_addrs.get(header.broker_id), header.broker_name, broker)
        broker.broker_addrs.pop(header.broker_id, None)
        self._drop_name_without_address(broker)
        self._begin_dropping()

    def expire(self, now: float, age_max: float) -> list[object]:
        """Remove brokers that were silent for longer than `age_max` seconds; return their links."""
        late = [address for address, live in self._live.items() if now - live.updated > age_max]
        links = []
        for address in late:
            links.append(self._live[address].link)
            log.warning("removed broker %s: no registration for more than %g s", address, age_max)
            self._drop_address(address)
        self._begin_dropping()
        return links

    def drop_link(self, link: object) -> list[str]:
        """Remove the brokers of a closed connection; return their addresses."""
        dropped = [address for address, live in self._live.items() if live.link is link]
        for address in dropped:
            self._drop_address(address)
        self._begin_dropping()
        for address in dropped[:_GONE_NAMED_MAX]:
            log.warning("removed broker %s: its connection was closed", address)
        if len(dropped) > _GONE_NAMED_MAX:
            log.warning("removed %d more brokers of the same connection", len(dropped) - _GONE_NAMED_MAX)
        return dropped

    def _drop_address(self, address: str) -> None:
        self._live.pop(address, None)
        self._filter_servers.pop(address, None)
        for name in self._names.pop(address, ()):
            broker = self._brokers[name]
            for number in [number for number, known in broker.broker_addrs.items() if known == address]:
                del broker.broker_addrs[number]
            self._drop_name_without_address(broker)

    def _drop_name_without_address(self, broker: BrokerData) -> None:
        """Remove a broker name whose last address is gone, together with its queues."""
        if broker.broker_addrs:
            return
        name = broker.broker_name
        del self._brokers[name]
        for cluster in self._clusters_of.pop(name, ()):
            names = self._clusters[cluster]
            del names[name]
            if not names:
                del self._clusters[cluster]
        if topics := self._topics.pop(name, None):
            self._leaving[name] = topics

    def _begin_dropping(self) -> None:
        while self.drop_some():
            if self._when_many_left is not None:
                self._when_many_left()
                return

    def drop_some(self) -> bool:
        """Remove some queues of gone brokers; return whether there are more."""
        left = _DROPPED_AT_ONCE
        while self._leaving and left > 0:
            name, topics = next(iter(self._leaving.items()))
            while topics and left > 0:
                self._drop_queues(topics.pop(), name)
                left -= 1
            if not topics:
                del self._leaving[name]
        return bool(self._leaving)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._queues.get(topic)
        if queues is not None:
            if queues.pop(broker_name, None) is not None:
                self._entries -= 1
            if not queues:
                del self._queues[topic]

    # -- queries -----------------------------------------------------------------------------------------------------

    def find_route(self, topic: str) -> TopicRouteData | None:
        """Return where the queues of a topic are; None if no queue or no broker is known.

        Like every result here it shares the objects of the tables, so it must be encoded before the next change.
        """
        queues = self._keep_present(self._queues.get(topic, {}))
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues]
        addresses = (address for broker in brokers for address in broker.broker_addrs.values())
        return TopicRouteData(
            broker_datas=brokers,
            filter_server_table={
                address: self._filter_servers[address] for address in addresses if address in self._filter_servers
            },
            queue_datas=list(queues.values()),
        )

    def describe_clusters(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(
            broker_addr_table=self._brokers,
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def list_topics(self) -> Iterator[str]:
        """Iterate over all topics. As with the lists below, the tables may change meanwhile."""
        return (topic for topic, _ in self._iterate_topics())

    def _iterate_topics(self) -> Iterator[tuple[str, dict[str, QueueData]]]:
        """Iterate over every topic with its queues, without those of gone brokers."""
        for topic, queues in list(self._queues.items()):
            if present := self._keep_present(queues):
                yield topic, present

    def _keep_present(self, queues: dict[str, QueueData]) -> dict[str, QueueData]:
        """Return the queues of a topic, without those of gone brokers."""
        if not self._leaving:
            return queues
        return {name: queue for name, queue in queues.items() if name in self._brokers}

    def list_cluster_topics(self, cluster: str) -> Iterator[str]:
        """Iterate over the topics that have queues on a broker of a cluster; none for an unknown cluster."""
        names = self._clusters.get(cluster, {}).keys()
        return (topic for topic, queues in self._iterate_topics() if not names.isdisjoint(queues))

    def list_system_topics(self) -> TopicList:
        """Return the names of clusters and brokers, which are topics too, and one address to ask for more."""
        names = [name for cluster, brokers in self._clusters.items() for name in (cluster, *brokers)]
        return TopicList(broker_addr=next(self._iterate_addresses(), None), topic_list=list(dict.fromkeys(names)))

    def _iterate_addresses(self) -> Iterator[str]:
        return (address for broker in self._brokers.values() for address in broker.broker_addrs.values())

    def list_unit_topics(self) -> Iterator[str]:
        """Iterate over the topics that belong to a unit."""
        return self._list_flagged(lambda flag: flag & TOPIC_UNIT != 0)

    def list_unit_subscribed_topics(self) -> Iterator[str]:
        """Iterate over the topics that a unit subscribes to."""
        return self._list_flagged(lambda flag: flag & TOPIC_UNIT_SUBSCRIBED != 0)

    def list_unit_subscribed_foreign_topics(self) -> Iterator[str]:
        """Iterate over the topics that a unit subscribes to and that belong to none."""
        return self._list_flagged(lambda flag: flag & (TOPIC_UNIT | TOPIC_UNIT_SUBSCRIBED) == TOPIC_UNIT_SUBSCRIBED)

    def _list_flagged(self, is_wanted: Callable[[int], bool]) -> Iterator[str]:
        """Filter topics by the flags of their first broker, as in Java."""
        return (
            topic for topic, queues in self._iterate_topics() if is_wanted(next(iter(queues.values())).topic_sys_flag)
        )

    # -- changes by an operator --------------------------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission of every topic of a broker; return how many there are."""
        queues = self._list_queues_of(broker_name)
        for queue in queues:
            queue.perm &= ~WRITE
        return len(queues)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reading and writing for every topic of a broker; return how many there are."""
        queues = self._list_queues_of(broker_name)
        for queue in queues:
            queue.perm = READ | WRITE
        return len(queues)

    def _list_queues_of(self, broker_name: str) -> list[QueueData]:
        topics = [self._queues.get(topic, {}) for topic in self._topics.get(broker_name, ())]
        return [queues[broker_name] for queues in topics if broker_name in queues]

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic, on the brokers of one cluster or everywhere."""
        if topic not in self._queues:
            return
        if not cluster:
            self._entries -= len(self._queues.pop(topic))
            return
        for name in self._clusters.get(cluster, {}):
            self._drop_queues(topic, name)


def _describe_version(version: DataVersion) -> str:
    return f"{version.counter}:{version.timestamp}"
