"""What a slave has besides the log: topics, groups, offsets; and a promotion that continues where the master was."""

from __future__ import annotations

from typing import Any

import pytest

from eruca._broker.options import BrokerRole
from eruca._broker.replication.asking import MemberCaller
from eruca._broker.replication.metadata import Metadata
from eruca._broker.replication.tables import CopiedTables
from eruca._net.handlers import HandlerTable, Reply, refuse_unknown
from eruca._net.server import Server, ServerSettings
from eruca._wire.bodies import (
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    GroupConfig,
    GroupConfigTable,
    TimerProgress,
    TopicConfig,
    TopicConfigTable,
    decode_json,
    encode_json,
)
from eruca._wire.codes import RequestCode
from eruca._wire.headers import BrokerConfigAnswerHeader, TopicHeader, UpdateConsumerOffsetHeader
from eruca._wire.names import TIMER_TOPIC
from eruca._wire.once import OnceMark
from tests.integration.broker.delivery import send_half, stored
from tests.integration.broker.peer import Peer
from tests.integration.broker.replication.members import Group, ShiftedClock, tail_of, wait_for_copy, wait_until
from tests.integration.broker.requests import send_header

NEVER_MS = 3_600_000


async def commit(peer: Peer, offset: int, *, group: str = "G", topic: str = "T", queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetHeader(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)
    await peer.expect(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def test_topics_groups_and_offsets_are_copied(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    peer = group.connect(master)
    await peer.make_topic("Orders", queues=3)
    await peer.expect(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=GroupConfig(group_name="G", retry_max_times=3)
    )
    await peer.send("Orders", body=b"1")
    await commit(peer, 1, topic="Orders")
    await wait_until(lambda: slave.offsets.get("G", "Orders", 0) == 1)
    # Each table arrives separately, perhaps the later ones in the next round.
    await wait_until(lambda: slave.topics.get("Orders") is not None and slave.groups.find("G") is not None)
    topic, found = slave.topics.get("Orders"), slave.groups.find("G")
    assert topic is not None and topic.write_queue_nums == 3
    assert found is not None and found.retry_max_times == 3
    await wait_until(lambda: slave.topics.data_version == master.topics.data_version)


async def test_offsets_are_merged_and_survive_a_restart(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    slave.offsets.put("Local", "T", 0, 5)
    await commit(group.connect(master), 0)
    await commit(group.connect(master), 3, queue_id=2)
    await wait_until(lambda: slave.offsets.get("G", "T", 2) == 3)
    assert slave.offsets.get("Local", "T", 0) == 5
    await group.remove(slave)
    again = await group.add(1)
    assert again.offsets.get("G", "T", 2) == 3
    assert again.offsets.get("Local", "T", 0) == 5


async def test_a_topic_that_is_deleted_and_made_again_begins_anew(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    peer = group.connect(master)
    await peer.send("T", body=b"old")
    await peer.send("T", body=b"older than its topic")
    await wait_for_copy(slave, master)
    await wait_until(lambda: slave.topics.get("T") is not None)
    await peer.expect(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="T"))
    await wait_until(lambda: slave.topics.get("T") is None)
    await peer.send("T", body=b"new")
    await wait_until(lambda: [message.body for message in stored(slave, "T")] == [b"new"])
    assert stored(slave, "T")[0].queue_offset == 0


async def test_a_topic_that_was_deleted_does_not_come_back_with_a_promotion(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    peer = group.connect(master)
    await peer.send("Gone")
    await peer.send("T")
    await wait_for_copy(slave, master)
    await peer.expect(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic="Gone"))
    version = master.topics.data_version
    await wait_until(lambda: slave.topics.data_version == version)
    await wait_until(lambda: slave.replication.metadata.topics_position == tail_of(master))
    await slave.replication.metadata.stop()
    # A topic whose settings never arrive, although its first message does.
    await peer.send("Young")
    await wait_for_copy(slave, master)
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    topics = slave.topics
    assert topics.get("Gone") is None
    assert topics.get("T") is not None and topics.get("Young") is not None


async def test_a_table_counts_when_its_log_is_there(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    peer = group.connect(master)
    await peer.send("T")
    await wait_for_copy(slave, master)
    await wait_until(lambda: slave.offsets.version)
    await slave.replication.follower.stop()
    await peer.send("T")
    await commit(peer, 2)
    looks = slave.replication.metadata
    await looks.copy()
    await looks.copy()
    assert slave.offsets.get("G", "T", 0) == -1
    slave.replication.follower.start()
    await wait_until(lambda: slave.offsets.get("G", "T", 0) == 2)


async def test_an_orderly_change_takes_the_last_offsets_along(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca._broker.replication.metadata._LAST_S", 30.0)
    master, slave = await group.add(0), await group.add(1, ha_metadata_ms=NEVER_MS)
    peer = group.connect(master)
    await wait_until(lambda: slave.replication.follower.state.connected)
    await peer.send("T")
    await commit(peer, 1)
    await master.replication.roles.fence("a change of places")
    await wait_for_copy(slave, master)
    await slave.replication.roles.become_master(1000, why="a change of places")
    assert slave.offsets.get("G", "T", 0) == 1


async def test_offsets_beyond_the_log_come_back_to_its_end(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    await group.connect(master).send("T")
    await wait_for_copy(slave, master)
    await group.remove(master)
    slave.offsets.put("G", "T", 0, 9)
    slave.offsets.put("H", "T", 0, 1)
    await slave.replication.roles.become_master(1000, why="the test says so")
    assert slave.offsets.get("G", "T", 0) == 1
    assert slave.offsets.get("H", "T", 0) == 1


async def test_what_is_done_is_copied_and_cut_to_the_log(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    peer = group.connect(master)
    for _ in range(3):
        await peer.send("T")
    await wait_for_copy(slave, master)
    master.offsets.commit("G", "T", 0, 0, "1,2-9")
    await wait_until(lambda: slave.offsets.get_done("G", "T", 0, 100) == "1,2-9")
    # What the master says is all there is.
    master.offsets.commit("G", "T", 0, 0, "2-9")
    await wait_until(lambda: slave.offsets.get_done("G", "T", 0, 100) == "2-9")
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    assert slave.offsets.get_done("G", "T", 0, 100) == "2"
    # A slave's log may be cut, and then it gets other messages.
    await slave.replication.roles.become_slave(None, why="the test says so")
    assert (slave.offsets.get("G", "T", 0), slave.offsets.get_done("G", "T", 0, 100)) == (0, "")


# -- services that continue ---------------------------------------------------------------------------------------


async def test_delayed_messages_come_once_and_none_is_missing(group: Group) -> None:
    clock = ShiftedClock()
    options: dict[str, Any] = {"schedule_interval_ms": 5, "clock": clock}
    master, slave = await group.add(0, **options), await group.add(1, **options)
    peer = group.connect(master)
    await peer.send("T", body=b"soon", DELAY="5")
    clock.shift_ms += 60_000
    await wait_until(lambda: len(stored(master, "T")) == 1, "the first is delivered")
    await wait_for_copy(slave, master)
    delivered = master.schedule.snapshot().offset_table
    await wait_until(lambda: slave.schedule.snapshot().offset_table == delivered, "the slave knows")
    await peer.send("T", body=b"later", DELAY="5")
    await wait_for_copy(slave, master)
    await group.remove(master)
    assert [message.body for message in stored(slave, "T")] == [b"soon"]
    await slave.replication.roles.become_master(1000, why="the test says so")
    clock.shift_ms += 60_000
    await wait_until(lambda: len(stored(slave, "T")) == 2, "the second is delivered")
    assert [message.body for message in stored(slave, "T")] == [b"soon", b"later"]


async def test_messages_of_the_timer_come_once_and_none_is_missing(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca._broker.delaying.timing.SAVE_INTERVAL_MS", 20)
    clock = ShiftedClock()
    options: dict[str, Any] = {"schedule_interval_ms": 5, "clock": clock}
    master, slave = await group.add(0, **options), await group.add(1, **options)
    peer = group.connect(master)
    await peer.send("T", body=b"soon", TIMER_DELAY_MS="60000")
    await peer.send("T", body=b"far", TIMER_DELAY_MS="3600000")
    clock.shift_ms += 60_000
    await wait_until(lambda: len(stored(master, "T")) == 1, "the first is delivered")
    await wait_for_copy(slave, master)
    await wait_until(lambda: slave.timing.progress == master.timing.progress and slave.timing.progress.read_offset == 2)
    assert len(stored(slave, TIMER_TOPIC)) == 2
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    queue = slave.store.queues.get(TIMER_TOPIC, 0)
    assert queue is not None
    await wait_until(lambda: slave.timing._read_offset == queue.max_offset, "the wheel knows the queue")
    clock.shift_ms += 3_600_000
    await wait_until(lambda: slave.timing.pending == 0, "the second is delivered")
    assert [message.body for message in stored(slave, "T")] == [b"soon", b"far"]


async def test_a_half_is_asked_about_by_the_new_master(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1, transaction_timeout_ms=0)
    half = await send_half(group.connect(master), born_ms=master.clock.now_ms() - 1)
    await wait_for_copy(slave, master)
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    await slave.checks.run_pass()
    copies = stored(slave, "RMQ_SYS_TRANS_HALF_TOPIC")
    assert len(copies) == 2
    assert copies[0].position == half.position
    assert copies[1].get_property("TRANSACTION_CHECK_TIMES") == "1"


async def test_marks_of_the_log_are_known_to_the_new_master(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    peer = group.connect(master)
    fields: dict[str, Any] = {"producer_group": "ERUCA_ONCE_SINK"}

    def header(number: int) -> Any:
        return send_header(properties=f"ERUCA_ONCE\x01q:1:0:{number}", **fields)

    for number in range(3):
        await peer.expect(RequestCode.SEND_MESSAGE_V2, header(number), b"%d" % number)
    await wait_for_copy(slave, master)
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    other = group.connect(slave)
    for number in range(5):
        await other.expect(RequestCode.SEND_MESSAGE_V2, header(number), b"%d" % number)
    assert [message.body for message in stored(slave, "T")] == [b"0", b"1", b"2", b"3", b"4"]
    assert slave.once.dropped == 3


async def test_marks_that_were_cut_off_are_forgotten(group: Group) -> None:
    master, slave = await group.add(0), await group.add(1)
    fields: dict[str, Any] = {"producer_group": "ERUCA_ONCE_SINK"}

    def header(number: int) -> Any:
        return send_header(properties=f"ERUCA_ONCE\x01q:1:0:{number}", **fields)

    await group.connect(master).expect(RequestCode.SEND_MESSAGE_V2, header(0), b"0")
    await wait_for_copy(slave, master)
    await group.remove(slave)
    await group.connect(master).expect(RequestCode.SEND_MESSAGE_V2, header(1), b"only here")
    await group.remove(master)
    slave = await group.add(1)
    await slave.replication.roles.become_master(1000, why="the test says so")
    master = await group.add(0)
    await wait_until(lambda: master.replication.follower.state.connected)
    await group.connect(slave).send("T", body=b"longer than what was cut off, so that the log is longer again")
    await wait_for_copy(master, slave)
    await group.remove(slave)
    await master.replication.roles.become_master(2000, why="the test says so")
    assert master.once.find_stored("T", 0, OnceMark("q", 1, 0, 0)) == 0
    await group.connect(master).expect(RequestCode.SEND_MESSAGE_V2, header(1), b"1")
    assert [message.body for message in stored(master, "T")][-1] == b"1"


# -- a Java master ----------------------------------------------------------------------------------------------------


class JavaMaster:
    """Answers its slaves as a Java broker does, on its main port and its fast one."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, RequestCode]] = []
        self.topics = TopicConfigTable(
            data_version=DataVersion(counter=7, timestamp=7),
            topic_config_table={"J": TopicConfig(topic_name="J", read_queue_nums=2, write_queue_nums=2, perm=6)},
        )
        self.groups = GroupConfigTable(
            data_version=DataVersion(counter=8, timestamp=8),
            subscription_group_table={"JG": GroupConfig(group_name="JG", retry_max_times=5)},
        )
        self.offsets = ConsumerOffsets(offset_table={"J@JG": {0: 11}})
        self.delays = DelayOffsets(offset_table={3: 4})

    def table(self, port: str) -> HandlerTable:
        """The handlers of a port."""
        table = HandlerTable()
        for code, body in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, self.topics),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, self.offsets),
            (RequestCode.GET_ALL_DELAY_OFFSET, self.delays),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.groups),
            (RequestCode.GET_BROKER_CONFIG, {"brokerRole": "SYNC_MASTER", "brokerId": "0"}),
        ):
            table.add(code, lambda request, code=code, body=body: self._answer(port, code, body))  # type: ignore[misc]
        return table

    def _answer(self, port: str, code: RequestCode, body: object) -> Reply:
        self.asked.append((port, code))
        return Reply(BrokerConfigAnswerHeader("1") if code == RequestCode.GET_BROKER_CONFIG else None, body)


async def test_the_tables_of_a_java_master_are_copied_as_its_slaves_do(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca._broker.replication.metadata._JAVA_FIRST_S", 0.0)
    java = JavaMaster()
    slave = await group.add(1, ha_metadata_ms=NEVER_MS, ha_reconnect_ms=NEVER_MS)
    servers = []
    for name, number in (("main", 0), ("fast", 0)):
        server = Server(java.table(name).handlers, refuse_unknown, ServerSettings(host="127.0.0.1", port=number))
        await server.start()
        servers.append(server)
    # The fast port is two below, which is not the case for two free ports; so it is passed in.
    main, fast = servers
    monkeypatch.setattr("eruca._broker.replication.metadata.FAST_PORT_BELOW", main.port - fast.port)
    looks = Metadata(
        slave.options,
        slave.standing,
        slave.store,
        CopiedTables(slave.topics, slave.groups, slave.offsets, slave.schedule, slave.timing),
        slave.replication.members,
        MemberCaller(slave._caller, slave._membership),
        lambda: (f"127.0.0.1:{main.port}", ""),
    )
    try:
        await looks.copy()
    finally:
        for server in servers:
            await server.stop()
    assert java.asked == [
        ("fast", RequestCode.GET_ALL_TOPIC_CONFIG),
        ("main", RequestCode.GET_ALL_CONSUMER_OFFSET),
        ("main", RequestCode.GET_ALL_DELAY_OFFSET),
        ("main", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        ("main", RequestCode.GET_BROKER_CONFIG),
    ]
    topic, found = slave.topics.get("J"), slave.groups.find("JG")
    assert topic is not None and topic.read_queue_nums == 2
    assert found is not None and found.retry_max_times == 5
    assert slave.offsets.get("JG", "J", 0) == 11
    assert slave.schedule.snapshot().offset_table == {3: 4}
    # Its successor waits for a slave too.
    assert slave.replication.members.mode == (True, 2)
    await slave.replication.roles.become_master(1100, why="the test says so")
    assert slave.standing.role is BrokerRole.SYNC_MASTER


def test_the_progress_of_the_timer_is_written_where_java_passes_over_it() -> None:
    table = DelayOffsets(eruca_timer=TimerProgress(read_offset=3, through_ms=4), offset_table={1: 2})
    assert encode_json(table) == b'{"erucaTimer":{"readOffset":3,"throughMs":4},"offsetTable":{"1":2}}'
    assert decode_json(DelayOffsets, b"{offsetTable:{1:2}}").eruca_timer is None
