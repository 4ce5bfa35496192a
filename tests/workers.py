"""How `make test` shares the tests among several workers (pytest-xdist).

Tests that share something expensive, a Spark session or a running system, are one group, so that it is started once.
All others are one group per file. Long groups come first, so that no worker begins one when the others are done.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

# Suites whose groups take minutes, the longest first; all others come after them.
LONG = ("spark", "clients", "delivery", "interop", "grpc", "replication", "admin", "console")
# Suites whose tests run against a system that is started once for each of these values of a parameter.
ON_SYSTEMS = ("clients", "delivery", "interop", "grpc", "admin", "console")
# In this order: of the suite `grpc`, `java` is a client too.
SYSTEMS = ("eruca", "proxy", "java")
# Of the suite `spark`, those that start Spark themselves, in a process of their own.
OWN_SPARK = ("test_archive_delta", "test_bench", "test_demo", "test_examples", "test_standalone", "test_stream_connect")


def find_suite(name: str) -> str:
    """The suite that a test or a group belongs to: a folder below `tests`."""
    return name.removeprefix("tests/").partition("/")[0]


def find_group(name: str) -> str:
    """The group of a test, by its full name: what it shares with others, otherwise its file."""
    file, _, function = name.partition("::")
    suite = find_suite(name)
    if suite == "spark" and not file.endswith(tuple(f"/{own}.py" for own in OWN_SPARK)):
        return "spark/one session"
    if suite in ON_SYSTEMS:
        parameters = function.partition("[")[2].rstrip("]").split("-")
        for system in SYSTEMS:
            if system in parameters:
                return f"{suite}/on {system}"
    return file


def rank(group: str) -> int:
    """Where a group goes when long ones come first."""
    suite = find_suite(group)
    return LONG.index(suite) if suite in LONG else len(LONG)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker one group after the other, the long ones first."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return find_group(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
        super()._assign_work_unit(node)
