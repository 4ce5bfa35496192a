"""The route tables: every rule of a registration, and every way a broker is removed."""

from __future__ import annotations

import time

import pytest

from eruca._nameserver.options import NameServerOptions
from eruca._nameserver.routes import RouteTables
from eruca._wire.bodies import (
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicRouteData,
)
from eruca._wire.headers import BrokerHeader, RegisterBrokerAnswerHeader, RegisterBrokerHeader
from eruca.errors import RequestRefused

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
LINK, OTHER_LINK = object(), object()


def body_of(*topics: TopicConfig | str, version: int = 1, filters: list[str] | None = None) -> RegisterBrokerBody:
    configs = [TopicConfig(topic_name=topic) if isinstance(topic, str) else topic for topic in topics]
    return RegisterBrokerBody(
        filter_server_list=filters or [],
        topic_config_serialize_wrapper=TopicConfigTable(
            data_version=DataVersion(version, 1000), topic_config_table={topic.topic_name: topic for topic in configs}
        ),
    )


def register(
    tables: RouteTables,
    body: RegisterBrokerBody | None,
    *,
    name: str = "a",
    address: str = MASTER,
    number: int = 0,
    cluster: str = "C",
    link: object = LINK,
    now: float = 0,
    base: str | None = None,
    epoch: int | None = None,
) -> RegisterBrokerAnswerHeader:
    ha_address = address.replace("10911", "10912")
    header = RegisterBrokerHeader(name, address, cluster, ha_address, number, eruca_base=base, eruca_epoch=epoch)
    return tables.register(header, body, link, now)


def route_of(tables: RouteTables, topic: str) -> TopicRouteData:
    route = tables.find_route(topic)
    assert route is not None
    return route


def addresses_of(tables: RouteTables, name: str = "a") -> dict[int, str]:
    return tables.describe_clusters().broker_addr_table[name].broker_addrs


@pytest.fixture
def tables() -> RouteTables:
    return RouteTables()


# --- registration ---------------------------------------------------------------------------------------------------


def test_master_brings_its_topics(tables: RouteTables) -> None:
    topic = TopicConfig(topic_name="T", perm=7, read_queue_nums=8, write_queue_nums=4, topic_sys_flag=1, order=True)
    assert register(tables, body_of(topic)) == RegisterBrokerAnswerHeader()
    route = route_of(tables, "T")
    assert route.queue_datas == [
        QueueData(broker_name="a", perm=7, read_queue_nums=8, topic_sys_flag=1, write_queue_nums=4)
    ]
    (broker,) = route.broker_datas
    assert (broker.broker_name, broker.cluster, broker.broker_addrs) == ("a", "C", {0: MASTER})
    assert tables.describe_clusters().cluster_addr_table == {"C": ["a"]}


def test_slave_brings_no_topics_and_learns_its_master(tables: RouteTables) -> None:
    assert register(tables, body_of("T"), address=SLAVE, number=1) == RegisterBrokerAnswerHeader()
    assert tables.find_route("T") is None
    register(tables, body_of("T"))
    answer = register(tables, body_of("S"), address=SLAVE, number=1)
    assert answer == RegisterBrokerAnswerHeader("10.0.0.1:10912", MASTER)
    assert tables.find_route("S") is None
    assert route_of(tables, "T").broker_datas[0].broker_addrs == {0: MASTER, 1: SLAVE}


def test_unchanged_table_is_not_read_again(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    tables.delete_topic("T")
    register(tables, body_of("T"))
    assert tables.find_route("T") is None
    register(tables, body_of("T", version=2))
    assert tables.find_route("T") is not None


@pytest.mark.parametrize("changed", [DataVersion(2, 1000), DataVersion(1, 1001)])
def test_both_numbers_of_a_version_count(tables: RouteTables, changed: DataVersion) -> None:
    register(tables, body_of("T"))
    body = body_of("U")
    body.topic_config_serialize_wrapper.data_version = changed
    register(tables, body)
    assert tables.find_route("U") is not None


def test_changed_table_updates_and_adds_but_removes_nothing(tables: RouteTables) -> None:
    register(tables, body_of("T", "Gone"))
    register(tables, body_of(TopicConfig(topic_name="T", perm=4, write_queue_nums=2), "New", version=2))
    assert list(tables.list_topics()) == ["T", "Gone", "New"]
    (queue,) = route_of(tables, "T").queue_datas
    assert (queue.perm, queue.write_queue_nums) == (4, 2)


def test_incremental_registration_keeps_the_rest(tables: RouteTables) -> None:
    register(tables, body_of("T", "U"))
    register(tables, body_of("New", version=2))
    assert set(tables.list_topics()) == {"T", "U", "New"}


def test_first_registration_of_an_id_brings_topics_whatever_its_version(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    tables.delete_topic("T")
    tables.unregister(BrokerHeader("a", "10.9.9.9:1", "C", 0))  # the id is removed, the data of the address stays
    register(tables, body_of("T"))
    assert tables.find_route("T") is not None


def test_slave_that_becomes_the_master_has_one_id_only(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    register(tables, body_of("T"), address=SLAVE, number=1)
    register(tables, body_of("T", "U", version=2), address=SLAVE, number=0)
    assert addresses_of(tables) == {0: SLAVE}
    assert tables.find_route("U") is not None


def test_registration_without_body_is_a_sign_of_life(tables: RouteTables) -> None:
    register(tables, None)
    assert tables.describe_clusters().cluster_addr_table == {"C": ["a"]}
    assert list(tables.list_topics()) == []
    assert tables.query_data_version(MASTER, DataVersion(), 0) == (False, DataVersion())


def test_topics_span_brokers(tables: RouteTables) -> None:
    register(tables, body_of("T", "OnlyA"))
    register(tables, body_of("T"), name="b", address="10.0.0.3:10911")
    route = route_of(tables, "T")
    assert [queue.broker_name for queue in route.queue_datas] == ["a", "b"]
    assert [broker.broker_name for broker in route.broker_datas] == ["a", "b"]
    assert [broker.broker_name for broker in route_of(tables, "OnlyA").broker_datas] == ["a"]


def test_filter_servers_come_and_go(tables: RouteTables) -> None:
    register(tables, body_of("T", filters=["10.0.0.1:30000"]))
    assert route_of(tables, "T").filter_server_table == {MASTER: ["10.0.0.1:30000"]}
    header = RegisterBrokerHeader("a", MASTER, "C", "", 0)
    tables.register(header, body_of("T"), LINK, 0, with_filter_servers=False)  # an old broker does not speak of them
    assert route_of(tables, "T").filter_server_table == {MASTER: ["10.0.0.1:30000"]}
    register(tables, body_of("T"))
    assert route_of(tables, "T").filter_server_table == {}


# --- data version ---------------------------------------------------------------------------------------------------


def test_data_version_of_an_unknown_broker(tables: RouteTables) -> None:
    assert tables.query_data_version(MASTER, DataVersion(1, 1000), 5) == (True, None)
    assert tables.expire(1000, 1) == []


def test_question_keeps_a_broker_alive_only_when_nothing_changed(tables: RouteTables) -> None:
    register(tables, body_of("T"), now=0)
    assert tables.query_data_version(MASTER, DataVersion(1, 1000), 100) == (False, DataVersion(1, 1000))
    assert tables.expire(150, 120) == []
    assert tables.query_data_version(MASTER, DataVersion(2, 1000), 200) == (True, DataVersion(1, 1000))
    assert tables.query_data_version(MASTER, None, 200) == (True, DataVersion(1, 1000))
    assert tables.expire(221, 120) == [LINK]
    assert tables.find_route("T") is None


# --- brokers go -----------------------------------------------------------------------------------------------------


def check_empty(tables: RouteTables) -> None:
    clusters = tables.describe_clusters()
    assert (clusters.broker_addr_table, clusters.cluster_addr_table) == ({}, {})
    assert list(tables.list_topics()) == []
    assert tables.list_system_topics().topic_list == [] and tables.list_system_topics().broker_addr is None
    assert not tables._live and not tables._filter_servers


def test_last_address_takes_name_cluster_and_queues_along(tables: RouteTables) -> None:
    register(tables, body_of("T", filters=["f"]))
    register(tables, body_of("T"), address=SLAVE, number=1)
    register(tables, body_of("T"), name="b", address="10.0.0.3:10911", cluster="D")
    tables.unregister(BrokerHeader("a", MASTER, "C", 0))
    assert addresses_of(tables) == {1: SLAVE}
    assert len(route_of(tables, "T").queue_datas) == 2
    tables.unregister(BrokerHeader("a", SLAVE, "C", 1))
    assert [queue.broker_name for queue in route_of(tables, "T").queue_datas] == ["b"]
    assert tables.describe_clusters().cluster_addr_table == {"D": ["b"]}
    tables.unregister(BrokerHeader("b", "10.0.0.3:10911", "D", 0))
    check_empty(tables)


def test_unregister_of_a_stranger_changes_nothing(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    tables.unregister(BrokerHeader("nobody", "10.9.9.9:1", "C", 0))
    assert tables.find_route("T") is not None


def test_silent_brokers_expire(tables: RouteTables) -> None:
    register(tables, body_of("T"), now=0)
    register(tables, body_of("T"), address=SLAVE, number=1, link=OTHER_LINK, now=60)
    assert tables.expire(120, 120) == []
    assert tables.expire(120.5, 120) == [LINK]
    assert addresses_of(tables) == {1: SLAVE}
    register(tables, None, address=SLAVE, number=1, link=OTHER_LINK, now=170)
    assert tables.expire(181, 120) == []
    assert tables.expire(291, 120) == [OTHER_LINK]
    check_empty(tables)


def test_closed_link_takes_its_brokers_at_once(tables: RouteTables) -> None:
    register(tables, body_of("T", filters=["f"]))
    register(tables, body_of("T"), address=SLAVE, number=1, link=OTHER_LINK)
    assert tables.drop_link(object()) == []
    assert tables.drop_link(LINK) == [MASTER]
    assert addresses_of(tables) == {1: SLAVE}
    assert tables.drop_link(OTHER_LINK) == [SLAVE]
    check_empty(tables)


def test_link_that_was_replaced_takes_nobody(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    register(tables, body_of("T"), link=OTHER_LINK)
    assert tables.drop_link(LINK) == []
    assert tables.find_route("T") is not None


def test_slave_learns_no_master_that_is_gone(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    register(tables, body_of("T"), address=SLAVE, number=1, link=OTHER_LINK)
    tables.drop_link(LINK)
    assert register(tables, body_of("T"), address=SLAVE, number=1) == RegisterBrokerAnswerHeader()


def test_broker_that_comes_back_brings_its_topics_again(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    tables.drop_link(LINK)
    assert tables.find_route("T") is None
    register(tables, body_of("T"))
    assert tables.find_route("T") is not None


# --- lists ----------------------------------------------------------------------------------------------------------


def test_topics_of_a_cluster(tables: RouteTables) -> None:
    register(tables, body_of("T", "A"))
    register(tables, body_of("T", "B"), name="b", address="10.0.0.3:10911", cluster="D")
    register(tables, body_of("T", "C"), name="c", address="10.0.0.4:10911", cluster="D")
    assert list(tables.list_cluster_topics("C")) == ["T", "A"]
    assert list(tables.list_cluster_topics("D")) == ["T", "B", "C"]
    assert list(tables.list_cluster_topics("none")) == []


def test_system_topics_are_cluster_and_broker_names(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    register(tables, body_of("T"), name="b", address="10.0.0.3:10911")
    topics = tables.list_system_topics()
    assert (topics.broker_addr, topics.topic_list) == (MASTER, ["C", "a", "b"])


def test_unit_topics_by_their_flags(tables: RouteTables) -> None:
    flags = {"None": 0, "Unit": 1, "Sub": 2, "Both": 3}
    register(tables, body_of(*(TopicConfig(topic_name=name, topic_sys_flag=flag) for name, flag in flags.items())))
    assert list(tables.list_unit_topics()) == ["Unit", "Both"]
    assert list(tables.list_unit_subscribed_topics()) == ["Sub", "Both"]
    assert list(tables.list_unit_subscribed_foreign_topics()) == ["Sub"]


# --- an operator ----------------------------------------------------------------------------------------------------


def test_write_permission_is_taken_and_given(tables: RouteTables) -> None:
    register(tables, body_of("T", TopicConfig(topic_name="TBW102", perm=7)))
    register(tables, body_of("T"), name="b", address="10.0.0.3:10911")
    assert tables.wipe_write_perm("a") == 2
    assert [queue.perm for queue in route_of(tables, "T").queue_datas] == [4, 6]
    assert [queue.perm for queue in route_of(tables, "TBW102").queue_datas] == [5]
    assert tables.add_write_perm("a") == 2
    assert [queue.perm for queue in route_of(tables, "T").queue_datas] == [6, 6]
    # The inherit bit is lost, as in Java.
    assert [queue.perm for queue in route_of(tables, "TBW102").queue_datas] == [6]
    assert tables.wipe_write_perm("nobody") == tables.add_write_perm("nobody") == 0


def test_wiped_permission_stays_until_the_table_changes(tables: RouteTables) -> None:
    register(tables, body_of("T"))
    tables.wipe_write_perm("a")
    register(tables, body_of("T"))
    assert route_of(tables, "T").queue_datas[0].perm == 4
    register(tables, body_of("T", version=2))
    assert route_of(tables, "T").queue_datas[0].perm == 6


def test_topic_is_deleted_everywhere_or_in_one_cluster(tables: RouteTables) -> None:
    for name, cluster, port in (("a", "C", 1), ("b", "D", 2)):
        register(tables, body_of("T", "U"), name=name, cluster=cluster, address=f"10.0.0.1:{port}")
    tables.delete_topic("T", "none")
    tables.delete_topic("nothing", "C")
    assert len(route_of(tables, "T").queue_datas) == 2
    tables.delete_topic("T", "C")
    assert [queue.broker_name for queue in route_of(tables, "T").queue_datas] == ["b"]
    tables.delete_topic("T", "D")
    assert tables.find_route("T") is None
    tables.delete_topic("U")
    assert list(tables.list_topics()) == []


# --- changes only ---------------------------------------------------------------------------------------------------


def test_a_broker_brings_what_changed_since_what_we_said_we_have(tables: RouteTables) -> None:
    assert register(tables, body_of("T", "U"), base="").eruca_known == "1:1000"
    assert register(tables, body_of("V", version=2), base="1:1000").eruca_known == "2:1000"
    assert set(tables.list_topics()) == {"T", "U", "V"}
    assert register(tables, body_of(version=2), base="2:1000").eruca_known == "2:1000"  # a sign of life
    # Java's brokers do not ask for it, and do not get it.
    assert register(tables, body_of("T"), name="java", address=SLAVE).eruca_known is None


def test_changes_of_what_we_do_not_have_are_not_taken(tables: RouteTables) -> None:
    assert register(tables, body_of("V", version=2), base="1:1000", epoch=7).eruca_known == ""
    assert not list(tables.list_topics()) and not tables.describe_clusters().broker_addr_table
    assert tables.find_epoch("a") is None
    register(tables, body_of("T"), base="", epoch=7)
    assert register(tables, body_of("V", version=3), base="2:1000", epoch=7).eruca_known == ""
    assert register(tables, body_of("V", version=3), base="1:1000", cluster="D", epoch=7).eruca_known == ""
    # A slave whose topics were withheld becomes the master: it brings them all.
    register(tables, body_of("T"), address=SLAVE, number=1, base="")
    assert register(tables, body_of(version=1), address=SLAVE, base="1:1000", epoch=1000).eruca_known == ""
    assert (addresses_of(tables), tables.find_epoch("a")) == ({0: MASTER, 1: SLAVE}, 7)
    assert register(tables, body_of("T", "W"), address=SLAVE, base="", epoch=1000).eruca_known == "1:1000"
    assert (addresses_of(tables), tables.find_epoch("a")) == ({0: SLAVE}, 1000)
    assert set(tables.list_topics()) == {"T", "W"}


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        {"name": ""},
        {"name": "n" * 1000},
        {"cluster": "c" * 1000},
        {"address": "a" * 100_000},
        {"address": "a\n:1"},
    ],
)
def test_names_that_cannot_be_are_refused(tables: RouteTables, names: dict[str, str]) -> None:
    with pytest.raises(RequestRefused):
        register(tables, body_of("T"), **names)  # type: ignore[arg-type]
    for servers in (["f" * 1000], [f"10.0.0.1:{number}" for number in range(100)]):
        with pytest.raises(RequestRefused):
            register(tables, body_of("T", filters=servers))
    assert not tables.describe_clusters().broker_addr_table and not list(tables.list_topics())


def test_a_topic_that_cannot_be_one_is_left_out_and_the_others_are_taken(
    tables: RouteTables, caplog: pytest.LogCaptureFixture
) -> None:
    register(tables, body_of("T", "../x", "t" * 256, "", "U"))
    assert set(tables.list_topics()) == {"T", "U"}
    assert "is ignored: " in caplog.text


def test_names_addresses_and_topics_are_bounded_and_what_goes_makes_room() -> None:
    limits = NameServerOptions(brokers_max=3, route_entries_max=5)
    tables = RouteTables(options=lambda: limits)
    for number in range(3):
        register(tables, body_of("T", "U"), name=f"n{number}", address=f"h{number}:1", link=number)
    assert tables._entries == 5
    for more in ({"name": "n3"}, {"name": "n0", "cluster": "C2"}, {"name": "n0", "address": "h9:1"}):
        if "cluster" in more:
            limits = NameServerOptions(brokers_max=1)
        with pytest.raises(RequestRefused, match="the maximum of this name server"):
            register(tables, body_of("T"), **{"address": "h0:1", **more})  # type: ignore[arg-type]
        limits = NameServerOptions(brokers_max=3, route_entries_max=5)
    tables.drop_link(0)
    assert tables._entries == 3
    register(tables, body_of("T", "U"), name="n4", address="h4:1")
    assert tables._entries == 5
    tables.delete_topic("T")
    tables.delete_topic("U", "C")
    assert tables._entries == 0


def test_a_connection_that_brought_thousands_of_brokers_ends_in_one_pass(tables: RouteTables) -> None:
    topics = [f"T{number}" for number in range(20)]
    for number in range(3000):
        register(tables, body_of(*topics), name=f"n{number}", address=f"h:{number}", cluster=f"C{number % 100}")
    register(tables, body_of("T0"), name="stays", address="other:1", link=OTHER_LINK)
    started = time.monotonic()
    assert len(tables.drop_link(LINK)) == 3000
    assert time.monotonic() - started < 5  # and not that long for each
    assert list(tables.list_topics()) == ["T0"]
    assert list(tables.describe_clusters().broker_addr_table) == ["stays"]
