"""Events that others hear of."""

from __future__ import annotations

from eruca._ground.signals import Signal


def test_all_who_listen_are_told_in_their_order() -> None:
    told: list[object] = []
    signal: Signal[str, int] = Signal()
    signal.tell("nobody", 0)
    signal.listen(lambda name, number: told.append((name, number)))
    signal.listen(lambda name, number: told.append(name))
    signal.tell("a", 1)
    assert told == [("a", 1), "a"]


def test_one_who_has_heard_enough_is_not_told() -> None:
    told: list[int] = []
    signal: Signal[int] = Signal()
    note = told.append
    signal.listen(note)
    assert note in signal
    signal.tell(1)
    signal.ignore(note)
    assert note not in signal
    signal.tell(2)
    assert told == [1]
