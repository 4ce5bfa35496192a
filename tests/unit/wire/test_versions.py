"""Names of the versions that peers announce."""

from __future__ import annotations

import pytest

from eruca._wire import codes
from eruca._wire.versions import name_version


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (codes.VERSION_4_9_7, "4.9.7"),
        (codes.VERSION_4_9_8, "4.9.8"),
        (codes.VERSION_4_6_0, "4.6.0"),
        (codes.VERSION_4_0_0, "4.0.0"),
        (codes.VERSION_4_1_0_SNAPSHOT, "4.1.0-SNAPSHOT"),
        (codes.VERSION_5_3_3, "5.3.3"),
        (codes.VERSION_3_5_8, "before 4.0"),
        (0, "before 4.0"),
        (-1, "before 4.0"),
        (codes.VERSION_HIGHER, "6 or later"),
        (2**31 - 1, "6 or later"),
    ],
)
def test_a_number_has_a_name(number: int, name: str) -> None:
    assert name_version(number) == name


def test_every_constant_is_named_as_it_says() -> None:
    found = {name: number for name, number in vars(codes).items() if name.startswith(("VERSION_4_", "VERSION_5_"))}
    assert len(found) > 10
    for name, number in found.items():
        assert name_version(number) == name.removeprefix("VERSION_").replace("_SNAPSHOT", "-SNAPSHOT").replace("_", ".")
