"""Masters with an epoch: one that was replaced is refused; Java's brokers, which have none, do as they did."""

from __future__ import annotations

import pytest

from eruca._core.replication.numbering import count_promotion, count_restart, was_promoted
from eruca._ground.limits import EPOCH_AHEAD_MAX, EPOCH_MAX, EPOCHS_KEPT_MAX
from eruca._nameserver.app import NameServer
from eruca._nameserver.masterships import NAME_TAKEN, STALE_MASTER
from eruca._nameserver.options import NameServerOptions
from eruca._nameserver.routes import RouteTables
from eruca._net.caller import Caller
from eruca._wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import encode_ext
from eruca._wire.frame import make_request
from eruca._wire.headers import BrokerHeader, RegisterBrokerAnswerHeader, RegisterBrokerHeader
from eruca.errors import RequestRefused

OLD, NEW, THIRD = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
OLD_LINK, NEW_LINK = object(), object()
PROMOTED = count_promotion(1)


def body_of(*topics: str) -> RegisterBrokerBody:
    table = {topic: TopicConfig(topic_name=topic) for topic in topics}
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigTable(data_version=DataVersion(1, 1), topic_config_table=table)
    )


def register(
    tables: RouteTables,
    address: str,
    epoch: int | None = None,
    *,
    number: int = 0,
    name: str = "a",
    topics: tuple[str, ...] = ("T",),
    link: object | None = None,
) -> RegisterBrokerAnswerHeader:
    header = RegisterBrokerHeader(name, address, "C", address.replace("10911", "10912"), number, eruca_epoch=epoch)
    return tables.register(header, body_of(*topics), link or (OLD_LINK if address == OLD else NEW_LINK), 0.0)


def refuse(tables: RouteTables, address: str, epoch: int | None) -> str:
    with pytest.raises(RequestRefused) as caught:
        register(tables, address, epoch)
    assert caught.value.remark.startswith(STALE_MASTER)
    return caught.value.remark


def addresses_of(tables: RouteTables) -> dict[int, str]:
    return tables.describe_clusters().broker_addr_table["a"].broker_addrs


@pytest.fixture
def tables() -> RouteTables:
    return RouteTables()


@pytest.fixture
def failed_over(tables: RouteTables) -> RouteTables:
    """The slave was promoted while the old master was still registered."""
    register(tables, OLD, 1)
    register(tables, NEW, number=1)
    register(tables, NEW, PROMOTED)
    assert addresses_of(tables) == {0: NEW}
    return tables


def test_java_brokers_do_not_see_the_field() -> None:
    header = RegisterBrokerHeader("a", OLD, "C", OLD, 0)
    assert "erucaEpoch" not in encode_ext(header)
    header.eruca_epoch = 7
    assert encode_ext(header)["erucaEpoch"] == "7"


def test_the_last_java_master_that_registers_wins(tables: RouteTables) -> None:
    register(tables, OLD)
    register(tables, NEW)
    assert addresses_of(tables) == {0: NEW}
    register(tables, OLD)
    assert addresses_of(tables) == {0: OLD}
    tables.unregister(BrokerHeader("a", NEW, "C", 0))  # the id is removed, whichever address it is sent for
    assert "a" not in tables.describe_clusters().broker_addr_table


def test_a_master_that_was_replaced_is_refused(failed_over: RouteTables) -> None:
    assert f"epoch {PROMOTED}" in refuse(failed_over, OLD, 1)
    assert NEW in refuse(failed_over, OLD, count_restart(1))
    assert "has no epoch" in refuse(failed_over, OLD, None)
    assert "the same epoch" in refuse(failed_over, OLD, PROMOTED)
    assert addresses_of(failed_over) == {0: NEW}


def test_it_may_come_back_as_a_slave_and_be_promoted_again(failed_over: RouteTables) -> None:
    answer = register(failed_over, OLD, number=1)
    assert answer.master_addr == NEW
    assert addresses_of(failed_over) == {0: NEW, 1: OLD}
    register(failed_over, OLD, count_promotion(PROMOTED))
    assert addresses_of(failed_over) == {0: OLD}
    refuse(failed_over, NEW, PROMOTED)


def test_its_goodbye_does_not_take_the_new_one_away(failed_over: RouteTables) -> None:
    failed_over.unregister(BrokerHeader("a", OLD, "C", 0))
    assert addresses_of(failed_over) == {0: NEW}
    failed_over.drop_link(OLD_LINK)
    assert addresses_of(failed_over) == {0: NEW}
    failed_over.unregister(BrokerHeader("a", NEW, "C", 0))
    assert failed_over.describe_clusters().broker_addr_table == {}


def test_a_name_without_members_keeps_its_epoch(failed_over: RouteTables) -> None:
    failed_over.drop_link(NEW_LINK)
    failed_over.drop_link(OLD_LINK)
    assert failed_over.describe_clusters().broker_addr_table == {}
    assert "not registered now" in refuse(failed_over, OLD, count_restart(1))
    assert failed_over.find_epoch("a") == PROMOTED
    register(failed_over, NEW, count_restart(PROMOTED))
    assert addresses_of(failed_over) == {0: NEW}


def test_topics_of_a_promoted_slave_are_new_although_its_version_is_not(tables: RouteTables) -> None:
    register(tables, OLD, 1, topics=("T",))
    register(tables, NEW, number=1, topics=("T", "U"))
    assert tables.find_route("U") is None
    register(tables, NEW, PROMOTED, topics=("T", "U"))
    assert tables.find_route("U") is not None


def test_a_store_that_begins_anew_is_no_replaced_master(tables: RouteTables) -> None:
    register(tables, OLD, 7)
    register(tables, OLD, 1)  # at the same address, before its going was noticed
    tables.drop_link(OLD_LINK)
    register(tables, THIRD, 1, link=OLD_LINK)
    assert addresses_of(tables) == {0: THIRD}


def test_two_first_masters_of_one_name_do_not_take_turns(tables: RouteTables) -> None:
    register(tables, OLD, 1)
    assert OLD in refuse(tables, NEW, 1)
    register(tables, NEW, 2)  # but a higher epoch is a higher epoch
    refuse(tables, OLD, 1)


def test_a_java_broker_takes_over_when_nobody_is_there(failed_over: RouteTables) -> None:
    failed_over.drop_link(NEW_LINK)
    register(failed_over, THIRD)
    assert addresses_of(failed_over) == {0: THIRD}
    refuse(failed_over, OLD, 2)


def test_the_epoch_of_a_slave_counts_for_nothing(tables: RouteTables) -> None:
    register(tables, NEW, PROMOTED, number=1)
    assert tables.find_epoch("a") is None
    register(tables, OLD, 1)


def test_names_that_are_gone_make_room(tables: RouteTables) -> None:
    register(tables, OLD, 1, name="stays")
    for number in range(EPOCHS_KEPT_MAX):
        link = object()
        register(tables, NEW, 1, name=f"gone{number}", link=link)
        tables.drop_link(link)
    assert tables.find_epoch("stays") == 1 and tables.find_epoch("gone0") is None
    assert tables.find_epoch(f"gone{EPOCHS_KEPT_MAX - 1}") == 1


def test_restarts_never_come_to_the_number_of_a_promotion() -> None:
    assert [count_restart(0), count_restart(1), count_promotion(0), count_promotion(1)] == [1, 2, 1000, 1000]
    assert [count_promotion(999), count_promotion(1000), count_promotion(1003)] == [1000, 2000, 2000]
    assert not was_promoted(999) and was_promoted(1000)


async def test_a_refusal_says_which_epoch_is_known() -> None:
    nameserver = NameServer(NameServerOptions(listen_port=0))
    await nameserver.start()
    caller = Caller()
    try:
        for address, epoch, code in ((NEW, PROMOTED, ResponseCode.SUCCESS), (OLD, 1, ResponseCode.SYSTEM_ERROR)):
            header = RegisterBrokerHeader("a", address, "C", "", 0, eruca_epoch=epoch)
            answer = await caller.call(nameserver.address, make_request(RequestCode.REGISTER_BROKER, header), 20_000)
            assert answer.code == code
        assert answer.remark is not None and answer.remark.startswith(STALE_MASTER)
        assert answer.decode_header(RegisterBrokerAnswerHeader).eruca_epoch == PROMOTED
    finally:
        await caller.close()
        await nameserver.stop()


# -- stores ------------------------------------------------------------------------------------------------------------


def register_store(tables: RouteTables, address: str, epoch: int, store: str | None) -> None:
    header = RegisterBrokerHeader("a", address, "C", address, 0, eruca_epoch=epoch, eruca_store=store)
    tables.register(header, body_of("T"), OLD_LINK if address == OLD else NEW_LINK, 0.0)


@pytest.mark.parametrize("store", [None, "theirs"])
def test_a_master_of_another_store_does_not_take_the_name(tables: RouteTables, store: str | None) -> None:
    register_store(tables, OLD, 1, "ours")
    with pytest.raises(RequestRefused) as caught:
        register_store(tables, NEW, PROMOTED, store)
    assert caught.value.remark.startswith(NAME_TAKEN) and addresses_of(tables) == {0: OLD}
    register_store(tables, OLD, 2, "ours")
    # When it is gone the name is free.
    tables.drop_link(OLD_LINK)
    register_store(tables, NEW, PROMOTED, store)
    assert addresses_of(tables) == {0: NEW}


def test_a_member_of_the_same_store_takes_over(tables: RouteTables) -> None:
    register_store(tables, OLD, 1, "ours")
    register_store(tables, NEW, PROMOTED, "ours")
    assert addresses_of(tables) == {0: NEW}
    # A master of a version without identities may be replaced by one that has it.
    tables.drop_link(NEW_LINK)
    register_store(tables, OLD, PROMOTED + 1, None)
    register_store(tables, NEW, PROMOTED + 1000, "ours")
    assert addresses_of(tables) == {0: NEW}


@pytest.mark.parametrize("epoch", [-1, EPOCH_MAX + 1, 2**63 - 1])
def test_epochs_that_cannot_be_are_refused(tables: RouteTables, epoch: int) -> None:
    with pytest.raises(RequestRefused, match="is not valid"):
        register_store(tables, OLD, epoch, None)
    assert tables.find_epoch("a") is None


def test_an_epoch_that_is_too_far_ahead_of_the_master_is_refused(tables: RouteTables) -> None:
    register_store(tables, OLD, 1, "ours")
    with pytest.raises(RequestRefused, match="too far ahead"):
        register_store(tables, NEW, EPOCH_AHEAD_MAX + 2, "ours")
    assert tables.find_epoch("a") == 1
    register_store(tables, NEW, EPOCH_AHEAD_MAX + 1, "ours")


def test_the_goodbye_of_a_slave_leaves_another_one_with_its_id(tables: RouteTables) -> None:
    register(tables, OLD, 1)
    register(tables, THIRD, number=1)
    register(tables, NEW, number=1)
    tables.unregister(BrokerHeader("a", THIRD, "C", 1))
    assert addresses_of(tables) == {0: OLD, 1: NEW}
