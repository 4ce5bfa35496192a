"""The tables of topics and groups: the built-in ones, automatic creation, and what counts as a change."""

from __future__ import annotations

import pytest

from eruca._wire.bodies import GroupConfig, TopicConfig, TopicConfigTable
from eruca._wire.names import FORBIDDEN_TO_SEND
from eruca.errors import InvalidName
from tests.unit.broker.tables import make_groups, make_topics

BAD_NAMES = ["", " ", "../x", "a/b", "a\\b", ".", "..", "a.b", "x\0y", "x\ny", "é", "x" * 300, "C:\\x", "~root"]


def test_every_broker_has_the_topics_of_java() -> None:
    topics = make_topics(cluster="C", name="b")
    shown = {name: (topics.get(name), name) for name in topics.names()}
    queues = {name: (config.write_queue_nums, config.perm) for name, (config, _) in shown.items() if config}
    assert queues == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
    }
    assert all(topics.is_system(name) for name in (*queues, *FORBIDDEN_TO_SEND, "rmq_sys_x", "RMQ_SYS_TRACE_TOPIC"))
    assert not topics.is_system("T")


def test_options_decide_what_inherits_and_what_is_there() -> None:
    topics = make_topics(
        auto_create_topic=False, cluster_topic=False, broker_topic=False, trace_topic=True, trace_topic_name="Traces"
    )
    assert topics.get("TBW102") is None
    for name in ("DefaultCluster", "broker-a", "Traces"):
        config = topics.get(name)
        assert config is not None
        assert config.perm == 6
    for template in ("TBW102", "DefaultCluster", "broker-a"):
        assert topics.create_for_send("T", template, 4) is None


def test_a_kept_template_does_not_inherit_when_that_is_switched_off() -> None:
    kept = TopicConfigTable(topic_config_table={"TBW102": TopicConfig(topic_name="TBW102", perm=7)})
    topics = make_topics(kept, auto_create_topic=False)
    assert topics.create_for_send("T", "TBW102", 4) is None
    assert topics.get("T") is None


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (9, 8), (2**31 - 1, 8), (0, 0), (-1, 0), (-(2**31), 0)])
def test_a_topic_has_at_most_the_queues_of_its_template(asked: int, made: int) -> None:
    config = make_topics().create_for_send("T", "TBW102", asked)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums) == (made, made)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_name_that_breaks_the_rule_enters_a_table(name: str) -> None:
    topics, groups = make_topics(), make_groups()
    with pytest.raises(InvalidName):
        topics.put(TopicConfig(topic_name=name))
    with pytest.raises(InvalidName):
        topics.create_for_send(name, "TBW102", 4)
    with pytest.raises(InvalidName):
        topics.create_internal(name, 1)
    with pytest.raises(InvalidName):
        groups.put(GroupConfig(group_name=name))
    assert groups.get(name) is None
    assert name not in topics.names() + groups.names()


def test_every_change_is_told_and_counted() -> None:
    topics = make_topics()
    told: list[int] = []
    topics.changed.listen(lambda: told.append(topics.revision))
    start = topics.data_version.counter
    topics.put(TopicConfig(topic_name="T"))
    topics.create_internal("I", 1)
    topics.create_internal("I", 5)  # there already
    assert topics.delete("T")
    assert not topics.delete("T")
    assert told == [1, 2, 3]
    assert topics.data_version.counter == start + 3
    internal = topics.get("I")
    assert internal is not None
    assert internal.write_queue_nums == 1


def test_what_changed_since_a_revision_is_listed_and_nothing_else() -> None:
    topics = make_topics()

    def names(revision: int) -> set[str] | None:
        changes = topics.list_changes(revision)
        return None if changes is None else set(changes)

    assert names(topics.revision) == set()
    for name in ("A", "B", "C"):
        topics.put(TopicConfig(topic_name=name))
    middle = topics.revision
    assert names(0) == {"A", "B", "C"}
    topics.put(TopicConfig(topic_name="A", perm=4))
    topics.delete("B")
    assert names(middle) == {"A"}
    assert names(0) == {"A", "C"}
    assert names(topics.revision) == set()
    topics.renew()
    assert names(middle) is None
    assert names(topics.revision) == set()
    topics.replace(TopicConfigTable())
    assert names(topics.revision - 1) is None


def test_new_topics_are_unsaved_until_the_disk_has_the_snapshot_with_them() -> None:
    topics = make_topics()
    topics.put(TopicConfig(topic_name="A"))
    topics.snapshot_to_save()
    topics.put(TopicConfig(topic_name="B"))
    topics.put(TopicConfig(topic_name="A", perm=4))  # sends to it need not wait for that
    assert set(topics.unsaved) == {"A", "B"}
    topics.note_saved()
    assert set(topics.unsaved) == {"B"}
    topics.replace(
        TopicConfigTable(topic_config_table={"B": TopicConfig(topic_name="B"), "C": TopicConfig(topic_name="C")})
    )
    assert set(topics.unsaved) == {"B", "C"}
    topics.snapshot_to_save()
    topics.note_saved()
    assert not topics.unsaved


def test_a_snapshot_does_not_change_any_more() -> None:
    topics, groups = make_topics(), make_groups()
    topic_table, group_table = topics.snapshot(), groups.snapshot()
    version = topic_table.data_version.counter
    topics.put(TopicConfig(topic_name="T"))
    groups.put(GroupConfig(group_name="G"))
    assert "T" not in topic_table.topic_config_table
    assert "G" not in group_table.subscription_group_table
    assert topic_table.data_version.counter == version


def test_what_was_kept_comes_back() -> None:
    topics, groups = make_topics(), make_groups()
    topics.put(TopicConfig(topic_name="TBW102", read_queue_nums=2, write_queue_nums=2, perm=7))
    groups.put(GroupConfig(group_name="TOOLS_CONSUMER", retry_max_times=1))
    again = make_topics(topics.snapshot())
    assert again.snapshot().topic_config_table == topics.snapshot().topic_config_table
    assert again.data_version.counter == topics.data_version.counter
    tools = make_groups(groups.snapshot()).find("TOOLS_CONSUMER")
    assert tools is not None
    assert tools.retry_max_times == 1


def test_groups_make_themselves_when_they_may() -> None:
    groups = make_groups()
    changes: list[None] = []
    groups.changed.listen(lambda: changes.append(None))
    assert groups.find("G") is None
    made = groups.get("G")
    assert made is not None
    assert (made.retry_max_times, made.retry_queue_nums, made.consume_enable) == (16, 1, True)
    assert groups.get("G") is made
    assert len(changes) == 1
    assert groups.delete("G")
    assert not groups.delete("G")
    strict = make_groups(auto_create_group=False)
    assert strict.get("G") is None
    assert strict.get("TOOLS_CONSUMER") is not None


def test_the_topics_of_a_group() -> None:
    topics = make_topics()
    retry, dead = topics.retry_topic("G", 3), topics.dead_letter_topic("G")
    assert (retry.topic_name, retry.read_queue_nums, retry.perm) == ("%RETRY%G", 3, 6)
    assert (dead.topic_name, dead.read_queue_nums, dead.perm) == ("%DLQ%G", 1, 6)
