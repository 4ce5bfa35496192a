"""Sends on the fast path: what counts as an ordinary message is one."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._broker.sending.kernel import ordinary
from eruca._broker.sending.mapping import TIMER_MARK, add_property
from eruca._wire.once import RAW_ONCE_MARK
from tests.kernels import load_twins

TWINS = load_twins("eruca._broker.sending.kernel.ordinary")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())

ADDED = b"CLUSTER\x01c"
UNIQUE = "UNIQ_KEY\x017F000001"
WORDS = ("WAIT", "true", "false", "DELAY", "CLUSTER", "TRAN_MSG", "TIMER_DELAY_MS", "ERUCA_ONCE", "T", "é", "\0", "k")


def join_plainly(raw: bytes) -> bytes:
    """The properties of a message that is neither delayed nor half, the long way."""
    return add_property(raw, ADDED, drop_wait=True)


@each_twin
@pytest.mark.parametrize(
    ("properties", "stored"),
    [
        (UNIQUE, f"{UNIQUE}\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02", f"{UNIQUE}\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02WAIT\x01true", f"{UNIQUE}\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02WAIT\x01true\x02TAGS\x01é", f"{UNIQUE}\x02TAGS\x01é\x02CLUSTER\x01c"),
        (f"{UNIQUE}\x02WAIT\x01true\x02TAGS\x01a\x02", f"{UNIQUE}\x02TAGS\x01a\x02CLUSTER\x01c"),
        ("DELAYED\x011\x02xWAIT", "DELAYED\x011\x02xWAIT\x02CLUSTER\x01c"),
    ],
)
def test_ordinary_properties_lose_wait_and_get_the_cluster(twin: ModuleType, properties: str, stored: str) -> None:
    assert twin.take_ordinary(properties, ADDED) == stored.encode() == join_plainly(properties.encode())


@each_twin
@pytest.mark.parametrize(
    "properties",
    [
        "",
        "\x02WAIT\x01true",
        "WAIT\x01true",
        f"WAIT\x01true\x02{UNIQUE}",
        f"{UNIQUE}\x02WAIT\x01false",
        f"{UNIQUE}\x02WAIT\x01trueish",
        f"{UNIQUE}\x02WAIT\x01tru",
        f"{UNIQUE}\x02AWAIT\x01true",
        f"{UNIQUE}\x02WAIT\x01true\x02WAIT\x01true",
        f"{UNIQUE}\x02DELAY\x013",
        f"{UNIQUE}\x02TRAN_MSG\x01true",
        f"{UNIQUE}\x02CLUSTER\x01other",
        f"{UNIQUE}\x02ERUCA_ONCE\x01a",
        f"{UNIQUE}\x02TIMER_DELAY_MS\x011",
        "DELAY\x011",
        "TIMER_DELIVER_MS\x011",
    ],
)
def test_a_message_that_may_go_another_way_is_not_ordinary(twin: ModuleType, properties: str) -> None:
    assert twin.take_ordinary(properties, ADDED) is None


@each_twin
@given(parts=st.lists(st.sampled_from(["\x01", "\x02", *WORDS]), max_size=14))
def test_whatever_is_taken_for_ordinary_is(twin: ModuleType, parts: list[str]) -> None:
    raw = "".join(parts).encode()
    found = twin.take_ordinary("".join(parts), ADDED)
    assert found == ordinary.take_ordinary("".join(parts), ADDED)
    if found is not None:
        assert found == join_plainly(raw)
        marks = (b"WAIT\x01false", b"DELAY\x01", b"TRAN_MSG\x01true", TIMER_MARK, RAW_ONCE_MARK)
        assert not [mark for mark in marks if mark in raw]
