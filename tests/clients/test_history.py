"""The checks of a history refuse what they must and accept what a group may do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from eruca._wire.bodies import MessageQueue
from tests.clients.history import Change, History, find_disorder, find_lost, find_overlaps
from tests.clients.members import Balance, Delivery, RecordFile, find_faults

Q0 = MessageQueue(broker_name="b", queue_id=0, topic="T")
Q1 = MessageQueue(broker_name="b", queue_id=1, topic="T")
SECOND = 1_000_000_000


class Told:
    """A member that was given what the test says, and nothing else."""

    client_id = "id"

    def __init__(self, name: str, *deliveries: Delivery) -> None:
        self.name = name
        self._deliveries = deliveries

    def balance(self) -> Balance:
        raise NotImplementedError

    def queues(self) -> frozenset[MessageQueue]:
        raise NotImplementedError

    def consumed(self) -> Sequence[Delivery]:
        return self._deliveries

    def stop(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError


def deliver(body: str, began: float, done: float | None = -1, member: str = "a", queue: MessageQueue = Q0) -> Delivery:
    """A delivery at some second; the handler is done 10 ms later unless told otherwise."""
    end = began + 0.01 if done == -1 else done
    return Delivery(
        member=member,
        began_ns=round(began * SECOND),
        queue=queue,
        offset=0,
        reconsume_times=0,
        unique_id="",
        keys="",
        body=body,
        done_ns=None if end is None else round(end * SECOND),
    )


def tell(*deliveries: Delivery) -> History:
    """A group in which, from second 10 to second 12, queue 0 went from `a` to `b` and queue 1 stayed with `a`."""
    history = History(commit_seconds=1, catch_up_seconds=2)
    for name in sorted({delivery.member for delivery in deliveries}):
        history.add(Told(name, *(delivery for delivery in deliveries if delivery.member == name)))
    history.changes.append(
        Change("b joins", 10 * SECOND, {Q0: "a", Q1: "a"}, {Q0: "b", Q1: "a"}, settled_ns=12 * SECOND)
    )
    return history


# What the new owner is given when the group is at rest: nobody has had it before.
NEW = deliver("n", 12, member="b")

# --- lost and repeated ------------------------------------------------------------------------------------------


def test_what_nobody_finished_is_lost() -> None:
    deliveries = [deliver("m0", 1), deliver("m1", 1, None)]
    assert find_lost(deliveries, ["m0", "m1", "m2"]) == ["m1", "m2"]
    with pytest.raises(AssertionError, match=r"(?s)lost: 2\nm1\nm2"):
        tell(*deliveries).check(["m0", "m1", "m2"])


def test_what_was_never_sent_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"(?s)never sent: 1\nm1"):
        tell(deliver("m0", 1), deliver("m1", 2)).check(["m0"])


@pytest.mark.parametrize(
    ("earlier", "again"),
    [
        (deliver("m", 9.5), deliver("m", 10.5, member="b")),  # the offset was not committed in time
        (deliver("m", 5, 9.2), deliver("m", 10.5, member="b")),
        (deliver("m", 5, 11), deliver("m", 10.5, member="b")),  # both at once
        (deliver("m", 5, None), deliver("m", 12.5, member="b")),  # killed at its work
        (deliver("m", 10.5), deliver("m", 13.9, member="b")),  # the new owner has to catch up
    ],
)
def test_repetition_around_a_change_is_explained(earlier: Delivery, again: Delivery) -> None:
    assert tell(earlier, again, NEW).check(["m", "n"]) == {"b joins": 1}


def test_a_new_owner_has_not_caught_up_before_it_is_given_something_new() -> None:
    late = deliver("m", 60, member="b"), deliver("n", 60.1, member="b")
    assert tell(deliver("m", 9.5), *late).check(["m", "n"]) == {"b joins": 1}
    later = tell(deliver("m", 9.5), *late, deliver("m", 62.2, member="b"))
    with pytest.raises(AssertionError, match="came again without a reason: 1"):
        later.check(["m", "n"])


def test_a_run_waits_until_enough_is_far_from_changes() -> None:
    history = tell(deliver("m", 9.5), deliver("m", 10.5, member="b"), NEW, deliver("o", 14.1, member="b"))
    assert history.count_quiet() == 2
    history.wait_for_quiet(0.4, 0)
    with pytest.raises(AssertionError, match="only 2 of 4 deliveries"):
        history.wait_for_quiet(0.5, 0)


@pytest.mark.parametrize(
    ("earlier", "again"),
    [
        (deliver("m", 8.5), deliver("m", 10.5, member="b")),  # committed long before
        (deliver("m", 9.5), deliver("m", 9.9)),  # before anything happened
        (deliver("m", 9.5), deliver("m", 14.1, member="b")),  # long after
        (deliver("m", 12.5, 13), deliver("m", 15, member="b")),
        (deliver("m", 9.5, queue=Q1), deliver("m", 10.5, queue=Q1)),  # of a queue that stayed where it was
        (deliver("m", 9.5, None, queue=Q1), deliver("m", 10.5, member="b", queue=Q1)),
    ],
)
def test_repetition_without_a_reason_is_refused(earlier: Delivery, again: Delivery) -> None:
    with pytest.raises(AssertionError, match=r"came again without a reason: 1\nm of queue \d at offset 0: a "):
        tell(earlier, again, NEW).check(["m", "n"])


def test_every_repetition_is_judged_by_the_one_before_it() -> None:
    history = tell(deliver("m", 9.5), deliver("m", 10.5, member="b"), NEW, deliver("m", 20, member="b"))
    assert [duplicate.change is not None for duplicate in history.find_duplicates()] == [True, False]


def test_change_that_does_not_settle_is_refused() -> None:
    history = History(commit_seconds=1, catch_up_seconds=1)
    with pytest.raises(AssertionError, match="a leaves: the block has not said"), history.change("a leaves"):
        pass
    with history.change("a joins") as first:
        first.settle({Q0: "a"})
    with history.change("b joins") as second:
        second.settle({Q0: "b"})
    assert (first.moves(Q0), second.moves(Q0), second.moves(Q1)) == (True, True, False)
    assert history.changes == [first, second]


# --- order ------------------------------------------------------------------------------------------------------


def give(*numbers: int) -> list[Delivery]:
    """Deliveries of one key, a second after each other."""
    return [deliver(f"k:{number}", place + 1) for place, number in enumerate(numbers)]


@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (0, 1, 2, 1, 2, 3), (0, 1, 2, 1, 0, 1, 2), (0, 0, 0), (0, 1, 2, 2)])
def test_order_with_repeated_ends_is_kept(numbers: tuple[int, ...]) -> None:
    assert find_disorder(give(*numbers)) == []


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ((0, 2, 1), "k: a was given 2 after 0 went to a"),
        ((1, 0, 1), "k: a was given 1 after -1 went to nobody"),
        ((0, 1, 2, 3, 1, 3), "k: a was given 3 after 1 went to a"),
        ((0, 1, 2, 1), "k: ends with 1, but 2 was delivered before"),
    ],
)
def test_broken_order_is_found(numbers: tuple[int, ...], fault: str) -> None:
    assert fault in find_disorder(give(*numbers))


def test_two_handlers_at_one_key_are_found() -> None:
    assert find_disorder([deliver("k:0", 1, 2), deliver("j:0", 1.5, 3), deliver("k:1", 1.9, member="b")]) == [
        "k: b began with 1 while a was at 0"
    ]
    assert find_disorder([deliver("k:0", 1, None), deliver("k:0", 1.9, member="b")]) == []


# --- members ----------------------------------------------------------------------------------------------------


def test_records_are_read_on_and_half_a_line_did_not_happen(tmp_path: Path) -> None:
    path = tmp_path / "a.records"
    records = RecordFile(path, "a")
    assert records.read() == []
    first = ["+", 0, 5, "T", "b", 1, 7, 0, "u", None, "k:0"]
    path.write_text(json.dumps(first) + '\n["+", 1, 6,', encoding="utf-8")
    (delivery,) = records.read()
    assert (delivery.queue, delivery.offset, delivery.keys, delivery.done_ns) == (Q1, 7, "", None)
    with open(path, "a", encoding="utf-8") as file:
        file.write(' "T", "b", 0, 9, 1, "v", "key", "k:1"]\n["-", 0, 8]\n')
    assert [(row.body, row.done_ns, row.reconsume_times) for row in records.read()] == [("k:0", 8, 0), ("k:1", None, 1)]


def test_group_is_at_rest_only_when_all_agree() -> None:
    ids = {"a": "1", "b": "2"}
    both = ("1", "2")
    own0, own1, none = frozenset([Q0]), frozenset([Q1]), frozenset[MessageQueue]()
    expected = own0 | own1

    def judge(a: Balance, b: Balance) -> list[str]:
        return find_faults({"a": a, "b": b}, ids, expected)

    assert judge(Balance(own0, own0, both), Balance(own1, own1, both)) == []
    # The old owner has all and knows nothing of the newcomer, who waits.
    assert judge(Balance(expected, expected, ("1",)), Balance(none, own1, both)) == [
        "a has balanced among ['1'], the group is ['1', '2']",
        "b was given T/b/1",
    ]
    assert judge(Balance(own0, own0, both), Balance(own0, own0, both)) == [
        "T/b/0 has 2 owners, not 1: ['a', 'b']",
        "T/b/1 has 0 owners, not 1: []",
    ]
    assert judge(Balance(own0, own0, both), Balance(none, none, both)) == ["T/b/1 has 0 owners, not 1: []"]


# --- exclusive queues -------------------------------------------------------------------------------------------


def test_two_members_at_work_on_one_queue_are_found() -> None:
    both = [deliver("m0", 1, 3), deliver("m1", 1.1, 1.2), deliver("m2", 2, member="b")]
    assert find_overlaps(both) == ["queue 0: m2 at b, m0 at a"]
    with pytest.raises(AssertionError, match=r"two members at work on one queue: 1"):
        tell(*both).check_exclusive()


def test_members_that_wait_for_each_other_are_no_fault() -> None:
    one_by_one = [deliver("m0", 1, 2), deliver("m1", 1.5, 1.9), deliver("m2", 2.1, member="b"), deliver("m3", 2.2)]
    others = [deliver("m4", 1, 3), deliver("m5", 2, member="b", queue=Q1), deliver("m6", 4, None), deliver("m7", 9)]
    assert find_overlaps(one_by_one) == find_overlaps(others) == []
    tell(*one_by_one).check_exclusive()


@pytest.mark.parametrize(("what", "is_well"), [("1. a crashes", True), ("1. a leaves", False)])
def test_only_a_crash_excuses_a_repetition_of_an_exclusive_queue(what: str, is_well: bool) -> None:
    history = tell(deliver("m0", 9.9), deliver("m0", 10.5, member="b"))
    history.changes[0].what = what
    if is_well:
        history.check_exclusive()
    else:
        with pytest.raises(AssertionError, match=r"its member was not killed: 1"):
            history.check_exclusive()
