"""Errors answer what is wrong, whether to try again, and what to do next."""

from __future__ import annotations

import inspect

import pytest

from eruca import errors
from eruca.errors import ErucaError, ReplicaCorrupt, StoreError, StoreFull, StoreIOError, StoreReadOnly, TableUnsaved

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ErucaError)]


def test_the_hint_is_part_of_the_text() -> None:
    assert str(ErucaError("it is broken")) == "it is broken"
    assert str(ErucaError("it is broken", hint="mend it")) == "it is broken (mend it)"
    assert ErucaError("it is broken").hint == ""


def test_an_error_without_a_hint_of_its_own_keeps_its_class_hint() -> None:
    class Hinted(ErucaError):
        hint = "look there"

    assert str(Hinted("x")) == "x (look there)"
    assert str(Hinted("x", hint="")) == "x"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_says_what_it_is_and_whether_to_try_again(kind: type[ErucaError]) -> None:
    assert kind.__doc__
    assert isinstance(kind.retryable, bool)
    assert issubclass(kind, ErucaError)


def test_what_may_pass_by_itself_is_worth_another_try() -> None:
    retryable = {kind for kind in ALL if kind.retryable and issubclass(kind, StoreError)}
    # A full or failing disk, a table that is not on it yet, a broker that is not the master at the moment, bytes that a
    # master sends again.
    assert retryable == {StoreFull, StoreIOError, StoreReadOnly, ReplicaCorrupt, TableUnsaved}
