"""Which tests stay together when several workers share them."""

from __future__ import annotations

import pytest

from tests.paths import REPOSITORY
from tests.workers import OWN_SPARK, find_group, rank


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("tests/unit/wire/test_frame.py::test_a[java-1]", "tests/unit/wire/test_frame.py"),
        ("tests/test_tidy.py::test_no_dead_modules", "tests/test_tidy.py"),
        ("tests/clients/test_behaviour.py::test_behaviour[java-send-a_batch]", "clients/on java"),
        ("tests/grpc/test_matrix.py::test_cell[proxy-java-push]", "grpc/on proxy"),
        ("tests/grpc/test_matrix.py::test_cell[eruca-java-push]", "grpc/on eruca"),
        ("tests/delivery/test_java_on_eruca.py::test_java_clients[order-eruca]", "delivery/on eruca"),
        ("tests/clients/test_history.py::test_a_loss_is_found", "tests/clients/test_history.py"),
        ("tests/spark/test_stream.py::test_a[eruca]", "spark/one session"),
        ("tests/spark/test_demo.py::test_a", "tests/spark/test_demo.py"),
    ],
)
def test_group_of_a_test(name: str, group: str) -> None:
    assert find_group(name) == group


def test_long_suites_come_first() -> None:
    names = ["tests/unit/a.py", "replication/on java", "tests/clients/b.py", "spark/one session", "tests/test_tidy.py"]
    assert sorted(names, key=rank) == [names[3], names[2], names[1], names[0], names[4]]


def test_files_that_are_named_are_there() -> None:
    assert all((REPOSITORY / "tests" / "spark" / f"{name}.py").is_file() for name in OWN_SPARK)
