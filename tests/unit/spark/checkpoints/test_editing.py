"""Changes of checkpoints: what is written, what is refused, and what undoes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from eruca._spark.checkpoints.editing import apply_edit, choose_places, find_place, plan_edit, undo_edit
from eruca._spark.checkpoints.reading import Place, read_checkpoint
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError
from tests.unit.spark.checkpoints.store import CLICKS, KAFKA, Q0, Q1, Written, offsets


def wanted(places: Mapping[MessageQueue, int], source: int = 0) -> dict[Place, int]:
    return {Place(source, queue): offset for queue, offset in places.items()}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A checkpoint after two batches."""
    found = Written(tmp_path / "cp")
    found.add(0, offsets({Q0: 1, Q1: 1}), KAFKA)
    found.add(1, offsets({Q0: 4, Q1: 2, CLICKS: 3}, group="billing", nameServer="h:1"), KAFKA)
    return found


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_only_the_offsets_that_are_set_change(tmp_path: Path, version: str) -> None:
    written = Written(tmp_path / "cp", version=version)
    written.add(0, KAFKA, offsets({Q0: 4, Q1: 2, CLICKS: 3}, group="billing", nameServer="h:1"))
    before = written.read(0)
    plan = plan_edit(written.home, wanted({Q0: 9, CLICKS: 0, Q1: 2}, source=1))
    assert [(each.topic, each.queue_id, each.before, each.after) for each in plan.changes] == [
        ("orders", 0, 4, 9),
        ("clicks", 0, 3, 0),
    ]
    assert written.read(0) == before, "nothing is written yet"
    name = apply_edit(plan)
    text = offsets({Q0: 9, Q1: 2, CLICKS: 0}, group="billing", nameServer="h:1")
    assert written.read(0) == [*before[:3], ("1:" if version == "v2" else "") + text]
    # The checksum of the old content would be taken for damage.
    assert written.list_files() == ["commits/.0.crc", "commits/0", "metadata", "offsets/0"]
    assert undo_edit(written.home, name) == 0
    assert written.read(0) == before


def test_an_edit_is_undone_once_and_only_if_nothing_came_after_it(written: Written) -> None:
    before = written.read(1)
    name = apply_edit(plan_edit(written.home, wanted({Q0: 0})))
    with pytest.raises(ConfigError, match=rf"has no edit {name}x \(did you mean {name}\?\)"):
        undo_edit(written.home, name + "x")
    second = apply_edit(plan_edit(written.home, wanted({Q0: 1})))
    with pytest.raises(ConfigError, match=r"has changed since edit .*: its last batch is 1"):
        undo_edit(written.home, name)
    undo_edit(written.home, second)
    undo_edit(written.home, name)
    assert written.read(1) == before
    with pytest.raises(ConfigError, match="has no edit"):
        undo_edit(written.home, name)
    name = apply_edit(plan_edit(written.home, wanted({Q0: 0})))
    written.add(2, offsets({Q0: 9}))
    with pytest.raises(ConfigError, match=r"has changed since edit .*: its last batch is 2"):
        undo_edit(written.home, name)


def test_a_checkpoint_that_changes_meanwhile_is_left_alone(written: Written) -> None:
    plan = plan_edit(written.home, wanted({Q0: 0}))
    written.add(2, offsets({Q0: 9, Q1: 2, CLICKS: 3}), KAFKA)
    before = written.list_files()
    with pytest.raises(ConfigError, match="has changed since the edit was planned"):
        apply_edit(plan)
    plan = plan_edit(written.home, wanted({Q0: 0}))
    written.plan(2, offsets({Q0: 10, Q1: 2, CLICKS: 3}), KAFKA)
    with pytest.raises(ConfigError, match="has changed since the edit was planned"):
        apply_edit(plan)
    assert written.list_files() == before and not (written.home / "eruca-edits").exists()


# -- a batch that is planned -------------------------------------------------------------------------------------------


def test_a_planned_batch_is_not_touched_unless_it_is_given_up(written: Written) -> None:
    written.plan(2, offsets({Q0: 8, Q1: 8, CLICKS: 8, MessageQueue("broker-b", 0, "orders"): 3}), KAFKA)
    with pytest.raises(ConfigError, match=r"batch 2 is planned and not complete.*--give-up-batch"):
        plan_edit(written.home, wanted({Q0: 5}))
    before = written.list_files(), written.read(2)
    plan = plan_edit(written.home, wanted({Q0: 5}), give_up_batch=True)
    # Compared with where it would start again.
    assert [(each.topic, each.before, each.after) for each in plan.changes] == [("orders", 4, 5)]
    name = apply_edit(plan)
    found = read_checkpoint(written.home)
    assert (found.committed, found.planned) == (2, None)
    # The others go back to where it started: nothing is lost.
    assert {(each.topic, each.queue_id): each.committed for each in found.queues} == {
        ("orders", 0): 5, ("orders", 1): 2, ("clicks", 0): 3
    }  # fmt: skip
    assert written.read(2)[1] == before[1][1] and written.read(2)[3] == KAFKA
    assert (written.home / "commits" / "2").read_text() == 'v1\n{"nextBatchWatermarkMs":1}'
    undo_edit(written.home, name)
    assert written.read(2) == before[1]
    assert written.list_files() == [name for name in before[0] if name != "offsets/.2.crc"]


def test_what_cannot_be_given_up(tmp_path: Path) -> None:
    written = Written(tmp_path / "cp", is_stateful=True)
    written.plan(0, offsets({Q0: 4}))
    with pytest.raises(ConfigError, match=r"no batch is complete yet .*startingOffsets"):
        plan_edit(written.home, wanted({Q0: 5}), give_up_batch=True)
    written.complete(0)
    written.plan(1, offsets({Q0: 8}))
    with pytest.raises(ConfigError, match="cannot be given up, because the query has state"):
        plan_edit(written.home, wanted({Q0: 5}), give_up_batch=True)
    written.plan(2, offsets({Q0: 9}))
    with pytest.raises(ConfigError, match="batches 1 to 2 are planned"):
        plan_edit(written.home, wanted({Q0: 5}), give_up_batch=True)


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_queue_is_found_by_its_name(written: Written) -> None:
    places = choose_places(read_checkpoint(written.home), None)
    assert find_place(places, "orders", "broker-a", 1) == Place(0, Q1)
    with pytest.raises(
        ConfigError, match=r"no offset of orders, broker broker-b, queue 1 \(did you mean orders/broker-a/1"
    ):
        find_place(places, "orders", "broker-b", 1)
    with pytest.raises(ConfigError, match=r"\(it has clicks/broker-a/0, orders/broker-a/0, orders/broker-a/1\)"):
        find_place(places, "zzz", "yyy", 7)


def test_a_query_that_reads_a_topic_twice(tmp_path: Path) -> None:
    written = Written(tmp_path / "cp")
    written.add(0, offsets({Q0: 4}), offsets({CLICKS: 1}), offsets({Q0: 7}))
    found = read_checkpoint(written.home)
    with pytest.raises(ConfigError, match=r"sources 0 and 2 of the query both read orders .*--source 0"):
        choose_places(found, None)
    assert choose_places(found, 2) == [Place(2, Q0)]
    with pytest.raises(ConfigError, match=r"there is no source 3 \(there are 0, 1, 2\)"):
        choose_places(found, 3)
    apply_edit(plan_edit(written.home, wanted({Q0: 0}, source=2)))
    assert [json.loads(line) for line in written.read(0)[2:]] == [
        json.loads(offsets(each)) for each in ({Q0: 4}, {CLICKS: 1}, {Q0: 0})
    ]
