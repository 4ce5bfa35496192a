"""Routes: what a name server's answer means, when it is asked again, and errors that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eruca._client.session.calls import Calls
from eruca._client.session.route import make_route
from eruca._client.session.routes import Routes
from eruca._ground.limits import TOPIC_QUEUES_MAX
from eruca._net.addresses import NameServers
from eruca._net.caller import Caller
from eruca._wire.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData
from eruca._wire.frame import Command
from eruca.errors import CallTimeout, NetError, NoRoute, WireError
from tests.unit.client.scripted import ScriptedCluster, ScriptedNameServer, make_route_data, wait_until

A, B = "127.0.0.1:10911", "127.0.0.1:10921"


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    caller = Caller(scan_seconds=0.01)
    yield caller
    await caller.close()


@pytest.fixture
def routes(scripted: ScriptedCluster, caller: Caller) -> Routes:
    """Routes that ask the scripted name server."""
    return make_routes(caller, scripted.address)


def make_routes(caller: Caller, nameservers: str, timeout_ms: int = 3000) -> Routes:
    return Routes(Calls(caller, timeout_ms), NameServers(nameservers), timeout_ms)


def name(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


# --- what an answer means -------------------------------------------------------------------------------------------


def test_queues_are_sorted_as_in_every_client() -> None:
    route = make_route("T", make_route_data({"broker-b": B, "broker-a": A}, queues=2))
    assert name(route.write_queues) == ["broker-a:0", "broker-a:1", "broker-b:0", "broker-b:1"]
    assert route.read_queues == route.write_queues
    assert route.brokers == {"broker-a": {0: A}, "broker-b": {0: B}}
    assert route.clusters == ("DefaultCluster",)


def test_only_masters_with_permission_are_written_to() -> None:
    data = TopicRouteData(
        queue_datas=[
            QueueData(broker_name="all", read_queue_nums=1, write_queue_nums=2, perm=6),
            QueueData(broker_name="readonly", read_queue_nums=1, write_queue_nums=1, perm=4),
            QueueData(broker_name="writeonly", read_queue_nums=1, write_queue_nums=1, perm=2),
            QueueData(broker_name="slave-only", read_queue_nums=1, write_queue_nums=1, perm=6),
            QueueData(broker_name="gone", read_queue_nums=1, write_queue_nums=1, perm=6),
        ],
        broker_datas=[
            BrokerData(broker_name="all", broker_addrs={0: A, 1: B}),
            BrokerData(broker_name="readonly", broker_addrs={0: A}),
            BrokerData(broker_name="writeonly", broker_addrs={0: A}),
            BrokerData(broker_name="slave-only", broker_addrs={1: B}),
        ],
    )
    route = make_route("T", data)
    assert name(route.write_queues) == ["all:0", "all:1", "writeonly:0"]
    assert name(route.read_queues) == ["all:0", "readonly:0", "slave-only:0"]


def test_an_ordered_topic_has_the_queues_that_were_written_down_in_that_order() -> None:
    route = make_route("T", make_route_data({"broker-a": A}, queues=8, order="broker-b:2;broker-a:1;;broken;x:y"))
    assert name(route.write_queues) == ["broker-b:0", "broker-b:1", "broker-a:0"]
    assert len(route.read_queues) == 8


@pytest.mark.parametrize("order", ["", f"a:{TOPIC_QUEUES_MAX + 1}", f"a:{TOPIC_QUEUES_MAX};b:1", "a:" + "9" * 5000])
def test_absurd_numbers_of_queues_are_refused(order: str) -> None:
    queues = 4 if order else TOPIC_QUEUES_MAX + 1
    with pytest.raises(WireError, match=f"more than {TOPIC_QUEUES_MAX}"):
        make_route("T", make_route_data({"broker-a": A}, queues=queues, order=order))


# --- asking ---------------------------------------------------------------------------------------------------------


async def test_a_known_route_is_not_asked_again_until_it_is_refreshed(
    routes: Routes, scripted: ScriptedCluster
) -> None:
    changes: list[str] = []
    routes.on_change.append(changes.append)
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": A})
    first = await routes.get("T")
    assert await routes.get("T") is first
    assert await routes.get_for_send("T") is first
    assert routes.peek("T") is first
    assert await routes.refresh("T") == first
    assert scripted.nameserver.asked == ["T", "T"]
    assert changes == ["T"]
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": A, "broker-b": B})
    await routes.refresh_all()
    assert changes == ["T", "T"]
    assert routes.list_brokers() == {"broker-a": {0: A}, "broker-b": {0: B}}


async def test_many_who_ask_the_same_ask_once(routes: Routes, scripted: ScriptedCluster) -> None:
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": A})
    found = await asyncio.gather(*[routes.get("T") for _ in range(50)])
    assert len({id(route) for route in found}) == 1
    assert scripted.nameserver.asked == ["T"]
    failed = await asyncio.gather(*[routes.get_for_send("U") for _ in range(50)], return_exceptions=True)
    assert all(isinstance(error, NoRoute) for error in failed)
    assert scripted.nameserver.asked == ["T", "U", "TBW102", "*"]


async def test_one_who_gives_up_does_not_spoil_it_for_the_others(routes: Routes, scripted: ScriptedCluster) -> None:
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": A})
    hasty, patient = (asyncio.get_running_loop().create_task(routes.get("T")) for _ in range(2))
    await asyncio.sleep(0)
    hasty.cancel()
    assert (await patient).topic == "T"
    assert hasty.cancelled()


async def test_a_topic_that_is_still_to_be_made_has_queues_of_the_template(
    routes: Routes, scripted: ScriptedCluster
) -> None:
    scripted.nameserver.topics["TBW102"] = make_route_data({"broker-a": A, "broker-b": B}, queues=8)
    route = await routes.get_for_send("T")
    assert route.is_template
    assert name(route.write_queues) == [f"broker-{letter}:{number}" for letter in "ab" for number in range(4)]
    assert {queue.topic for queue in route.write_queues} == {"T"}
    assert await routes.get_for_send("T") is route
    # Who reads wants the real one.
    with pytest.raises(NoRoute):
        await routes.get("T")


async def test_the_brokers_of_a_template_may_change(routes: Routes, scripted: ScriptedCluster) -> None:
    scripted.nameserver.topics["TBW102"] = make_route_data({"broker-a": A})
    await routes.get_for_send("T")
    scripted.nameserver.topics["TBW102"] = make_route_data({"broker-b": B})
    assert name((await routes.refresh_for_send("T")).write_queues)[0] == "broker-b:0"
    scripted.nameserver.topics["TBW102"] = make_route_data({"broker-a": A})
    await routes.refresh_all()
    found = routes.peek("T")
    assert found is not None
    assert (name(found.write_queues)[0], found.is_template) == ("broker-a:0", True)
    scripted.nameserver.topics.clear()
    await routes.refresh_all()
    assert routes.peek("T") is found


@pytest.mark.usefixtures("forbid_waiting")
async def test_the_real_route_is_learnt_when_the_name_server_has_it(routes: Routes, scripted: ScriptedCluster) -> None:
    scripted.nameserver.topics["TBW102"] = make_route_data({"broker-a": A})
    await routes.get_for_send("T")
    learning = asyncio.get_running_loop().create_task(routes.learn("T"))
    await wait_until(lambda: scripted.nameserver.asked.count("T") > 2)
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": A}, queues=2)
    await learning
    found = routes.peek("T")
    assert found is not None
    assert not found.is_template
    assert len(found.write_queues) == 2


async def test_a_name_server_that_forgot_does_not_stop_who_knows_the_way(
    routes: Routes, scripted: ScriptedCluster
) -> None:
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": A})
    known = await routes.get("T")
    scripted.nameserver.topics.clear()
    await routes.refresh_all()
    assert routes.peek("T") is known
    with pytest.raises(NoRoute, match="topic T has no route anymore"):
        await routes.refresh("T")
    assert await routes.get("T") is known
    assert routes.find_address("broker-a") == A


async def test_the_newest_answer_says_where_a_broker_is(routes: Routes, scripted: ScriptedCluster) -> None:
    for topic in ("T", "U"):
        scripted.nameserver.topics[topic] = make_route_data({"broker-a": A})
        await routes.get(topic)
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": B})
    await routes.refresh("T")
    assert routes.find_address("broker-a") == B
    # An older route of another topic does not bring the old address back.
    scripted.nameserver.topics["V"] = make_route_data({"broker-c": A})
    await routes.get("V")
    assert routes.find_address("broker-a") == B


async def test_a_broker_that_came_back_is_found_by_a_route_that_looks_the_same(
    routes: Routes, scripted: ScriptedCluster
) -> None:
    for topic in ("T", "U"):
        scripted.nameserver.topics[topic] = make_route_data({"broker-a": A})
        await routes.get(topic)
    scripted.nameserver.topics["U"] = make_route_data({"broker-a": B})
    await routes.refresh("U")
    assert routes.find_address("broker-a") == B
    await routes.refresh("T")
    assert routes.find_address("broker-a") == A


async def test_addresses_by_id(routes: Routes, scripted: ScriptedCluster) -> None:
    scripted.nameserver.topics["T"] = TopicRouteData(
        queue_datas=[QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)],
        broker_datas=[BrokerData(broker_name="a", broker_addrs={0: A, 1: B})],
    )
    await routes.get("T")
    assert routes.find_address("a") == A
    assert routes.find_address("a", 1) == B
    assert routes.find_address("a", 7) == A
    assert routes.find_address("a", 7, only_this=True) is None
    assert routes.find_address("b") is None


async def test_a_watched_topic_is_asked_until_it_is_there(routes: Routes, scripted: ScriptedCluster) -> None:
    routes.watch("T")
    routes.watch("T")
    await routes.refresh_all()
    scripted.nameserver.topics["T"] = make_route_data({"broker-a": A})
    await routes.refresh_all()
    assert routes.peek("T") is not None
    routes.unwatch("T")
    routes.unwatch("T")
    assert scripted.nameserver.asked == ["T", "T"]


# --- name servers ---------------------------------------------------------------------------------------------------


async def test_the_next_name_server_is_asked_and_kept(scripted: ScriptedCluster, caller: Caller) -> None:
    other = ScriptedNameServer()
    await other.server.start()
    routes = make_routes(caller, f"{scripted.address};{other.address}", timeout_ms=1000)
    for server in (scripted.nameserver, other):
        server.topics["T"] = make_route_data({"broker-a": A})
    await routes.get("T")
    for _ in range(5):
        await routes.refresh("T")
    first, second = sorted((scripted.nameserver, other), key=lambda server: -len(server.asked))
    assert (len(first.asked), len(second.asked)) == (6, 0)
    first.is_silent = True
    await routes.refresh("T")
    first.is_silent = False
    await routes.refresh("T")
    assert (len(first.asked), len(second.asked)) == (7, 2)
    await second.server.stop()
    await routes.refresh("T")
    assert len(first.asked) == 8
    await other.server.stop()


async def test_silent_name_servers_share_the_time(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    routes = make_routes(caller, f"{A};{B};127.0.0.1:1", timeout_ms=300)
    waited: list[int] = []

    async def keep_silent(calls: Calls, address: str, command: Command, timeout_ms: int) -> Command:
        waited.append(timeout_ms)
        raise CallTimeout(f"{address} did not answer in time")

    monkeypatch.setattr(Calls, "call", keep_silent)
    with pytest.raises(NetError, match="no name server answers"):
        await routes.get("T")
    assert waited == [100, 100, 100]


async def test_no_name_server_answers(
    scripted: ScriptedCluster, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    routes = make_routes(caller, scripted.address)
    scripted.nameserver.topics |= {topic: make_route_data({"broker-a": A}) for topic in "TU"}
    await routes.get("T")
    await routes.get("U")
    address = scripted.address
    await scripted.nameserver.server.stop()
    with pytest.raises(NetError, match=f"no name server answers: .*{address}.*eruca up"):
        await routes.get("V")
    await routes.refresh_all()
    assert routes.peek("T") is not None
    await routes.refresh_all()
    assert [
        record.message.partition(";")[0] for record in caplog.records if record.name == "eruca._client.session.outages"
    ] == ["the name servers cannot be reached"]


@pytest.mark.usefixtures("no_nameservers")
async def test_no_name_server_is_named(caller: Caller) -> None:
    with pytest.raises(NetError, match=r'no name server is configured.*Producer\("127\.0\.0\.1:9876".*NAMESRV_ADDR'):
        await make_routes(caller, "").get("T")


# --- errors that say why --------------------------------------------------------------------------------------------


async def test_a_missing_topic_with_near_names(routes: Routes, scripted: ScriptedCluster) -> None:
    scripted.nameserver.topics |= {topic: make_route_data({"broker-a": A}) for topic in ("orders", "payments")}
    with pytest.raises(NoRoute) as caught:
        await routes.get_for_send("order")
    text = str(caught.value)
    assert f"topic order has no route: name server {scripted.address} does not know it" in text
    assert "its brokers do not create topics automatically" in text
    assert "did you mean orders?" in text
    assert f"eruca topic create -n {scripted.address} order creates it" in text


async def test_a_missing_topic_where_no_broker_is(routes: Routes) -> None:
    with pytest.raises(NoRoute, match="no broker is registered with it"):
        await routes.get_for_send("orders")


async def test_a_missing_topic_when_the_list_is_not_answered(scripted: ScriptedCluster, caller: Caller) -> None:
    routes = make_routes(caller, scripted.address, timeout_ms=500)
    scripted.nameserver.is_list_silent = True
    with pytest.raises(NoRoute) as caught:
        await routes.get("orders")
    assert "no broker is registered" not in str(caught.value)
    assert "the first message to it creates it" in str(caught.value)
