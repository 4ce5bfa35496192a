"""The official Java broker opens stores we wrote, serves every message of them, and we open what it leaves.

Each scenario is one store with messages of every kind, left in one way, and one run of the Java broker on it. The run
collects what the official client was told; every test then looks at one side of that.
"""

from __future__ import annotations

import base64
import shutil
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eruca._ground.clock import SystemClock
from eruca._ground.config import StoreOptions
from eruca._store.filesystem import LocalFileSystem
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.tables.tables import Tables
from eruca._testing.clock import VirtualClock
from eruca._wire.host import V4_HOST_BYTES, unpack_host
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.properties import DELAY, KEYS, REAL_QID, UNIQ_KEY
from eruca._wire.record import Record, decode_record
from eruca.errors import StoreLocked
from tests.interop.javapeer import Dump, JavaBroker, JavaNameServer, Link, Peer, StoreClient, find_broker_port
from tests.interop.workload import (
    COMMITTED,
    DELIVERED,
    EMPTY_TOPIC,
    GROUP,
    LONG_TOPIC,
    PENDING_LEVEL,
    QUEUES,
    RETRY_GROUP_TOPIC,
    TICK_MS,
    TOPICS,
    Workload,
    append_all,
    describe,
    hash_log,
    make_options,
    read_all,
    to_java,
    write_tables,
)

ALL_TOPICS = (*TOPICS, SCHEDULE_TOPIC)
# Our clock starts this long ago, so that delayed messages are due and nothing lies in the future.
AGE_MS = 600_000
SEARCHED = ("Single", 0)
JAVA_GROUP = "MadeByJava"
KEYS_ASKED = ("K0", "K1", "GROUP1", "GROUP3", "键2", "K3", "COMMON", "NOSUCH")


@dataclass(frozen=True)
class Scenario:
    """How a store is written and left, and how the Java broker on it ends."""

    name: str
    segment_bytes: int
    # "closed", "open" (as a dead process leaves it) or "recovered" (torn, then opened and closed by us).
    left: str = "closed"
    transient: bool = False
    java_ends: signal.Signals = signal.SIGTERM

    @property
    def options(self) -> StoreOptions:
        return make_options(self.segment_bytes, transient=self.transient)


SCENARIOS = (
    Scenario("closed", 64 * 1024),
    Scenario("open", 1024 * 1024, left="open", java_ends=signal.SIGKILL),
    Scenario("transient", 5 * 1024 * 1024, transient=True),
    Scenario("recovered", 256 * 1024, left="recovered"),
)
# `make test` takes the first two; they differ in everything that can differ.
PARAMETERS = [
    pytest.param(scenario, id=scenario.name, marks=[] if number < 2 else [pytest.mark.whole])
    for number, scenario in enumerate(SCENARIOS)
]


# --- writing the store ----------------------------------------------------------------------------------------------


@dataclass
class OurStore:
    """A store we wrote, and what we say about it ourselves."""

    root: Path
    options: StoreOptions
    work: Workload
    tail: int
    by_key: dict[str, list[int]]
    by_time: dict[int, int]
    digest: str = ""


def write_store(scenario: Scenario, folder: Path, port: int) -> OurStore:
    """Append everything and leave the store as the scenario says."""
    root = folder / "store"
    now = SystemClock().now_ms()
    clock = VirtualClock(now - AGE_MS)
    with ThreadPoolExecutor(1) as executor:
        # Only one that is left open shows the segments that were made ahead.
        store = open_store(root, scenario.options, clock=clock, executor=executor if scenario.left == "open" else None)
        work = Workload(store, clock, port)

        def pause() -> None:
            store.commit()
            store.flusher.sync_log()
            store.flusher.sync_derived()

        append_all(work, now, pause)
        store.commit()
        ours = OurStore(root, scenario.options, work, store.log.tail, {}, {})
        ours.by_key = {key: [position for position, _ in find_key(store, key)] for key in KEYS_ASKED}
        ours.by_time = {time: store.reader.find_offset(*SEARCHED, time) for time in choose_times(work)}
        write_tables(Tables(LocalFileSystem(), store.paths.config))
        if scenario.left == "open":
            executor.submit(int).result()  # a segment that is being made is made first; Java takes no half one
            ours.root = shutil.copytree(root, folder / "copy")
        elif scenario.left == "recovered":
            ours.root = leave_torn(store, work, folder / "copy")
        store.close()
    if scenario.left == "recovered":
        recover(ours)
    ours.digest = hash_log(ours.root, ours.tail)
    return ours


def find_key(store: MessageStore, key: str) -> list[tuple[int, memoryview]]:
    return store.reader.find_by_key("Keyed", key, 0, 2**62)


def choose_times(work: Workload) -> list[int]:
    """Before all, at, shortly before and after some messages, between two, and behind all."""
    stored = [message.store_timestamp for message in work.of_topic(SEARCHED[0]) if message.queue_id == SEARCHED[1]]
    times = [0, stored[0] - 1, stored[-1] + 1, work.clock.now_ms() + AGE_MS]
    for number in (0, 1, 7, len(stored) - 2):
        middle = (stored[number] + stored[number + 1]) // 2
        times += [stored[number], stored[number] + 1, middle - 1, middle, middle + 1, stored[number + 1] - 1]
    return times


def leave_torn(store: MessageStore, work: Workload, copy: Path) -> Path:
    """Leave a copy as a power failure does: with the end of its last record missing."""
    torn = store.append(work.make("Roll", 3, work.noise(1_000)))
    shutil.copytree(store.paths.root, copy)
    segment = store.options.commitlog_segment_bytes
    start = torn.position - torn.position % segment
    with open(copy / "commitlog" / f"{start:020d}", "r+b") as file:
        file.seek(torn.position + 500 - start)
        file.write(bytes(torn.size - 500))
    return copy


def recover(ours: OurStore) -> None:
    store = open_store(ours.root, ours.options)
    plan = store.recovered
    assert plan is not None
    assert not plan.clean
    assert plan.torn
    assert not plan.damage
    assert plan.log_end == store.log.tail == ours.tail
    store.close()


# --- one run of the Java broker ------------------------------------------------------------------------------------


@dataclass
class Run:
    """A store of ours and everything the Java broker said about it."""

    scenario: Scenario
    ours: OurStore
    broker: JavaBroker
    first: Dump
    by_key: dict[str, list[dict[str, Any]]]
    by_unique: dict[str, list[dict[str, Any]]]
    by_id: dict[str, dict[str, Any]]
    by_time: dict[int, int]
    by_tag: Dump
    topics: dict[str, Any]
    groups: dict[str, Any]
    committed: list[int]
    refused: str
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    last: Dump = field(default_factory=lambda: Dump({}, []))
    status: int = 0

    @property
    def work(self) -> Workload:
        return self.ours.work

    @property
    def indexed_from(self) -> int:
        """Position from which on Java indexed again after a crash; 0 after a clean stop."""
        starts = [int(line[-20:]) for line in self.broker.lines if "recover from this mapped file" in line]
        return starts[0] if starts else 0


def probe(scenario: Scenario, ours: OurStore, broker: JavaBroker, link: Link) -> Run:
    """Ask the Java broker everything, once the delayed messages that are due have arrived."""
    for queue_id, messages in group_due(ours.work).items():
        link.wait_for_offset("Delayed", queue_id, len(messages))
    probes = [ours.work.of_topic(topic)[0] for topic in TOPICS if ours.work.of_topic(topic)]
    probes += ours.work.of_topic("Batch")[40:42] + ours.work.of_topic("IPv6")
    # An offset id says which host to ask, so only those of hosts that can be reached are asked.
    reachable = [host for host in (ours.work.store_host, ours.work.store_host_v6) if can_reach(host)]
    ids = [encode_offset_id(m.store_host, m.position) for m in probes if m.store_host in reachable]
    unique = [(m.topic, name) for m in probes if (name := m.get_property(UNIQ_KEY))]
    times = list(ours.by_time)
    topic, queue_id = SEARCHED
    with pytest.raises(StoreLocked) as refused:
        open_store(ours.root, ours.options)
    return Run(
        scenario,
        ours,
        broker,
        first=link.dump(ALL_TOPICS),
        by_key={key: link.ask("key", topic="Keyed", key=key) for key in KEYS_ASKED},
        by_unique={name: link.ask("unique", topic=topic, key=name) for topic, name in unique},
        by_id={name: link.ask("view", id=name)[0] for name in ids},
        by_time=dict(zip(times, link.ask("search", topic=topic, queueId=queue_id, times=times), strict=True)),
        by_tag=link.dump(["Single"], tags="Tag1 || Tag2"),
        topics=link.ask("topics")[0],
        groups=link.ask("groups")[0],
        committed=link.ask("committed", topic="Single", queues=len(COMMITTED)),
        refused=str(refused.value),
    )


def can_reach(host: bytes) -> bool:
    """Does this machine have the address? Some have no IPv6."""
    with socket.socket(socket.AF_INET if len(host) == V4_HOST_BYTES else socket.AF_INET6) as probe_socket:
        return probe_socket.connect_ex(unpack_host(host)) == 0


def group_due(work: Workload) -> dict[int, list[Record]]:
    """The delayed messages that Java has to deliver, by the queue they go to."""
    due: dict[int, list[Record]] = {}
    for message in work.of_topic(SCHEDULE_TOPIC):
        properties = message.read_properties()
        level = int(properties[DELAY])
        if level != PENDING_LEVEL and message.queue_offset >= DELIVERED.get(level, 0):
            due.setdefault(int(properties[REAL_QID]), []).append(message)
    return due


def send_more(run: Run, link: Link) -> None:
    """Let the official client add messages to our topics."""
    text = base64.b64encode("来自 Java".encode()).decode()
    plain = {"body": text, "tags": "FromJava", "keys": "JAVA J%d", "flag": 9, "properties": {"蓝": "色"}}
    singles = [
        {**plain, "topic": topic, "queueId": queue_id, "keys": f"JAVA J{queue_id}"}
        for topic in ("Single", "Keyed", "Roll", EMPTY_TOPIC, LONG_TOPIC)
        for queue_id in range(QUEUES)
    ]
    compressed = base64.b64encode(b"compress me " * 1_000).decode()
    singles.append({**plain, "topic": "Compressed", "queueId": 1, "body": compressed})
    singles.append({**plain, "topic": "Delayed", "queueId": 2, "delay": PENDING_LEVEL})
    batch = [{**plain, "topic": "Batch", "queueId": 3, "keys": f"JB{number}"} for number in range(50)]
    answers = link.ask("send", messages=singles)
    run.sent = [(str(wanted["topic"]), answer) for wanted, answer in zip(singles, answers, strict=True)]
    (answer,) = link.ask("batch", messages=batch)
    run.sent.append(("Batch", answer))
    for topic, answer in run.sent:
        grown = len(batch) if topic == "Batch" else 1
        if topic == "Delayed":
            topic, answer = SCHEDULE_TOPIC, {**answer, "queueId": PENDING_LEVEL - 1}  # noqa: PLW2901
        link.wait_for_offset(topic, answer["queueId"], answer["queueOffset"] + grown)


@pytest.fixture(scope="module", params=PARAMETERS)
def run(
    request: pytest.FixtureRequest,
    peer: Peer,
    name_server: JavaNameServer,
    java_client: StoreClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """One scenario from the first append to the end of the Java broker."""
    scenario: Scenario = request.param
    folder = tmp_path_factory.mktemp(scenario.name)
    port = find_broker_port()
    ours = write_store(scenario, folder, port)
    with JavaBroker(
        peer,
        name_server.address,
        ours.root,
        name=f"java-{scenario.name}",
        home=folder / "java",
        port=port,
        properties=to_java(ours.options),
    ) as broker:
        with java_client.connect(broker, GROUP) as link:
            result = probe(scenario, ours, broker, link)
            send_more(result, link)
        # By a group that the broker has to make, so that it writes the table of groups again.
        with java_client.connect(broker, JAVA_GROUP) as link:
            result.last = link.dump(ALL_TOPICS)
        result.status = broker.end(scenario.java_ends)
    return result


@pytest.fixture(scope="module")
def back(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """A copy of the store, opened by us after the Java broker."""
    store = open_store(copy_store(run, tmp_path_factory.mktemp("back")), run.ours.options)
    yield store
    store.close()


def copy_store(run: Run, folder: Path) -> Path:
    """The store as Java left it; the times of files are kept."""
    return Path(shutil.copytree(run.ours.root, folder / "store"))


# --- what Java found ------------------------------------------------------------------------------------------------


def test_java_finds_the_store_sound(run: Run) -> None:
    left = "abnormally" if run.scenario.left == "open" else "normally"
    assert any(line.endswith(f"last shutdown {left}") for line in run.broker.lines)
    # Recovery stopped where we stopped: not a byte was cut off, none was taken for a record that is none.
    assert any(line.endswith(f"load over, and the max phy offset = {run.ours.tail}") for line in run.broker.lines)
    repeated = ["Maybe try to build consume queue repeatedly"] if run.scenario.left == "open" else []
    assert run.broker.list_complaints(repeated) == []
    # Java believed our checkpoint: it did not start at the first segment.
    assert (run.indexed_from > 0) == (run.scenario.left == "open")


def check_topic(run: Run, topic: str) -> None:
    """The client was given every message of a topic, and every field is what we appended."""
    expected = [describe(message) for message in run.work.of_topic(topic)]
    assert expected
    assert [row for row in run.first.messages if row["topic"] == topic] == expected
    for queue_id in range(QUEUES):
        count = sum(row["queueId"] == queue_id for row in expected)
        assert run.first.bounds[topic, queue_id] == (0, count)


def test_single(run: Run) -> None:
    check_topic(run, "Single")
    check_topic(run, LONG_TOPIC)
    check_topic(run, RETRY_GROUP_TOPIC)


def test_batch(run: Run) -> None:
    check_topic(run, "Batch")


def test_compressed(run: Run) -> None:
    check_topic(run, "Compressed")


def test_ipv6_hosts(run: Run) -> None:
    check_topic(run, "IPv6")


def test_big(run: Run) -> None:
    check_topic(run, "Big")


def test_empty_body(run: Run) -> None:
    check_topic(run, "Empty")


def test_properties_of_every_kind(run: Run) -> None:
    check_topic(run, "Properties")


def test_transactions(run: Run) -> None:
    check_topic(run, "Transaction")


def test_after_a_roll(run: Run) -> None:
    check_topic(run, "Roll")
    assert run.ours.tail > 4 * run.ours.options.commitlog_segment_bytes
    assert len(list((run.ours.root / "consumequeue" / "Roll" / "2").iterdir())) > 2
    assert len(list((run.ours.root / "index").iterdir())) > 2


def test_nothing_else_is_served(run: Run) -> None:
    assert run.first.bounds[EMPTY_TOPIC, 0] == (0, 0)
    shown = [message.position for topic in ALL_TOPICS for message in run.work.of_topic(topic)]
    served = [row["commitLogOffset"] for row in run.first.messages if row["commitLogOffset"] < run.ours.tail]
    assert sorted(served) == sorted(shown)


def test_delayed(run: Run) -> None:
    check_topic_of_levels(run)
    due = group_due(run.work)
    assert len(due) == 3
    for queue_id in range(QUEUES):
        delivered = {row["msgId"]: row for row in run.first.of_queue("Delayed", queue_id)}
        expected = {message.get_property(UNIQ_KEY): message for message in due.get(queue_id, [])}
        assert delivered.keys() == expected.keys()
        for name, message in expected.items():
            row = delivered[str(name)]
            # A copy of what we stored, at a new place and with a new time, and not before it was due.
            kept = ("flag", "sysFlag", "bodyCRC", "bodySha256", "bornTimestamp", "bornHost", "storeHost", "properties")
            assert {key: row[key] for key in kept} == {key: describe(message)[key] for key in kept}
            delay_ms = {1: 1_000, 2: 5_000, 3: 10_000}[message.queue_id + 1]
            assert row["storeTimestamp"] >= message.store_timestamp + delay_ms
            assert row["commitLogOffset"] >= run.ours.tail


def check_topic_of_levels(run: Run) -> None:
    """What is pending stays where we put it."""
    expected = [describe(message) for message in run.work.of_topic(SCHEDULE_TOPIC)]
    assert [row for row in run.first.messages if row["topic"] == SCHEDULE_TOPIC] == expected
    pending = [row for row in expected if row["queueId"] == PENDING_LEVEL - 1]
    assert len(pending) == 10
    arrived = {row["msgId"] for row in run.last.messages if row["topic"] == "Delayed"}
    assert not arrived & {row["msgId"] for row in pending}


def test_keyed(run: Run) -> None:
    check_topic(run, "Keyed")
    by_position = {message.position: describe(message) for message in run.work.of_topic("Keyed")}
    for key in KEYS_ASKED:
        expected = [row for row in by_position.values() if key in str(row["keys"]).split(" ")]
        expected.sort(key=lambda row: int(row["commitLogOffset"]))
        found = sorted(run.by_key[key], key=lambda row: int(row["commitLogOffset"]))
        check_index_rows(run, found, expected)
        # Our own answer, before Java came.
        assert run.ours.by_key[key] == [row["commitLogOffset"] for row in expected], key
    assert run.by_key["NOSUCH"] == []
    assert len(run.ours.by_key["COMMON"]) == 15


def check_index_rows(run: Run, found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """All that was indexed is found; after a crash, at least what Java indexed again.

    After a crash Java deletes the index files that its checkpoint does not cover and indexes again from the segment
    where recovery starts, so it loses what lies between (its own stores are no different).
    """
    assert [row for row in found if row not in expected] == []
    missing = [row for row in expected if row not in found]
    assert [row for row in missing if row["commitLogOffset"] >= run.indexed_from] == []


def test_by_unique_id(run: Run) -> None:
    assert len(run.by_unique) > 20
    by_name = {message.get_property(UNIQ_KEY): message for message in run.work.messages}
    for name, rows in run.by_unique.items():
        check_index_rows(run, rows, [describe(by_name[name])])


def test_by_offset_id(run: Run) -> None:
    assert len(run.by_id) > 20
    assert {32} <= {len(name) for name in run.by_id} <= {32, 56}
    expected = {encode_offset_id(message.store_host, message.position): message for message in run.work.messages}
    for name, row in run.by_id.items():
        assert row == describe(expected[name]), name


def test_offset_by_time(run: Run) -> None:
    assert run.by_time == run.ours.by_time
    assert len(set(run.by_time.values())) >= 6


def test_by_tag(run: Run) -> None:
    """The broker chooses by the tags code of our entries before the client looks at the tags."""
    expected = [row for row in run.first.messages if row["topic"] == "Single" and row["tags"] in ("Tag1", "Tag2")]
    assert 0 < len(expected) < len(run.work.of_topic("Single"))
    assert run.by_tag.messages == expected


def test_java_reads_our_tables(run: Run) -> None:
    table = run.topics["topicConfigTable"]
    for topic in TOPICS:
        assert (table[topic]["readQueueNums"], table[topic]["writeQueueNums"], table[topic]["perm"]) == (4, 4, 6)
    assert run.groups["subscriptionGroupTable"][GROUP]["retryMaxTimes"] == 3
    assert run.committed == list(COMMITTED.values())


def test_one_process_at_a_time(run: Run) -> None:
    assert str(run.ours.root) in run.refused


# --- the way back ---------------------------------------------------------------------------------------------------


def test_java_appends_to_our_store(run: Run) -> None:
    assert {answer["status"] for _, answer in run.sent} == {"SEND_OK"}
    for topic, answer in run.sent:
        queue = (SCHEDULE_TOPIC, PENDING_LEVEL - 1) if topic == "Delayed" else (topic, answer["queueId"])
        # Java went on counting where we had stopped.
        assert answer["queueOffset"] == run.first.bounds[queue][1]
    assert len(run.last.messages) == len(run.first.messages) + len(run.sent) - 1 + 50


def test_java_changes_no_byte_of_ours(run: Run) -> None:
    assert hash_log(run.ours.root, run.ours.tail) == run.ours.digest
    ours = [row for row in run.last.messages if row["commitLogOffset"] < run.ours.tail]
    assert ours == [row for row in run.first.messages if row["commitLogOffset"] < run.ours.tail]


def test_we_read_everything_java_leaves(run: Run, back: MessageStore) -> None:
    plan = back.recovered
    assert plan is not None
    assert plan.clean == (run.scenario.java_ends is signal.SIGTERM)
    assert not plan.damage
    assert not plan.torn
    assert read_all(back, ALL_TOPICS) == run.last.messages
    for (topic, queue_id), (low, high) in run.last.bounds.items():
        queue = back.queues.get(topic, queue_id)
        assert ((0, 0) if queue is None else (queue.min_offset, queue.max_offset)) == (low, high)


def test_we_find_by_key_what_java_indexed(run: Run, back: MessageStore) -> None:
    for topic, answer in run.sent:
        if topic not in ("Batch", "Delayed"):
            ((position, view),) = back.reader.find_by_key(topic, answer["msgId"], 0, 2**62)
            assert encode_offset_id(decode_record(view).store_host, position) == answer["offsetMsgId"]
    assert len(back.reader.find_by_key("Keyed", "JAVA", 0, 2**62)) == QUEUES
    ((_, view),) = back.reader.find_by_key("Batch", "JB17", 0, 2**62)
    assert decode_record(view).get_property(KEYS) == "JB17"


def test_we_read_the_tables_java_leaves(run: Run, back: MessageStore) -> None:
    tables = Tables(LocalFileSystem(), back.paths.config)
    topics = tables.topics.load().topic_config_table
    assert {topics[topic].read_queue_nums for topic in TOPICS} == {QUEUES}
    groups = tables.groups.load().subscription_group_table
    assert groups[GROUP].retry_max_times == 3
    assert {JAVA_GROUP, "TOOLS_CONSUMER"} <= groups.keys()
    offsets = tables.consumer_offsets.load().offset_table[f"Single@{GROUP}"]
    assert {queue_id: offsets[queue_id] for queue_id in COMMITTED} == COMMITTED
    if run.scenario.java_ends is signal.SIGTERM:  # otherwise it had no time to write these
        assert SCHEDULE_TOPIC in topics
        levels = tables.delay_offsets.load().offset_table
        assert (levels[1], levels[2], levels[3]) == (10, 5, 10)


def test_we_go_on_where_java_stopped(run: Run, tmp_path: Path) -> None:
    root = copy_store(run, tmp_path)
    store = open_store(root, run.ours.options)
    message = store.append(run.work.make("Single", 0, b"after Java"))
    store.close()
    assert message.queue_offset == run.last.bounds["Single", 0][1]
    assert message.store_timestamp > run.work.clock.now_ms() - TICK_MS
    store = open_store(root, run.ours.options)
    assert describe(message) in read_all(store, ("Single",))
    store.close()
