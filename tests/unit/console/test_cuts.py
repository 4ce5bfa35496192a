"""What a page leaves out of a list, it counts."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eruca._admin.lag import QueueLag
from eruca._admin.results import Listed
from eruca._console.clusters import Cluster
from eruca._console.topics import detail
from tests.paths import REPOSITORY

_TEMPLATES = REPOSITORY / "src" / "eruca" / "_console" / "templates"
_SLICE = re.compile(r"([\w.]+)\[(?::(\d+)|-(\d+):)\]")
# The cell of a table writes the number of the others behind the first ones.
_COUNTED_ELSEWHERE = {"parts/ui.html": {("value", "3"), ("found", "5"), ("found.rows", "200")}}


@pytest.mark.parametrize("path", sorted(_TEMPLATES.rglob("*.html")), ids=lambda path: path.name)
def test_every_list_that_is_cut_is_followed_by_the_number_of_the_others(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    cuts = {(found[1], found[2] or found[3]) for found in _SLICE.finditer(text)}
    cuts -= _COUNTED_ELSEWHERE.get(str(path.relative_to(_TEMPLATES)), set())
    for name, count in cuts:
        told = re.search(rf"more\({re.escape(name)}, {count}\)|{re.escape(name)}\|length (-|>) {count}", text)
        assert told, f"{name} is cut after {count}, and nothing says so"


@pytest.mark.parametrize(("groups", "lag_is_cut", "wanted"), [(3, False, False), (3, True, True), (101, False, True)])
async def test_groups_of_a_topic_that_were_cut_are_marked(groups: int, lag_is_cut: bool, wanted: bool) -> None:
    async def list_lag(*_names: object, **_how: object) -> Listed[QueueLag]:
        return Listed(items=[], cut=lag_is_cut)

    cluster = SimpleNamespace(admin=SimpleNamespace(offsets=SimpleNamespace(lag=list_lag)))
    names = [f"group-{number}" for number in range(groups)]
    _, is_cut, _ = await detail.read_groups(cast("Cluster", cluster), "orders", names)
    assert is_cut is wanted
