"""The screen at every size: never wider or longer than the terminal, with what matters on it."""

from __future__ import annotations

import pytest

from eruca._cli.topview.details import Detail, Section
from eruca._cli.topview.drawing import choose_columns, count_room, draw
from eruca._cli.topview.sampling import Sample
from eruca._cli.topview.state import Key, Tab, ViewState
from tests.unit.cli.topview.samples import make_sample

SIZES = [(80, 24), (140, 50), (40, 12), (20, 8)]
DETAIL = Detail(
    "group billing\x1b[31m",
    ["clustering push", "2 members", "lag 1,000"],
    [
        Section(
            "queues", ["topic", ">queue", ">lag", "owner"], [("orders", str(n), "125", "10.0.0.7@3") for n in range(40)]
        ),
        Section("members", ["client id"], []),
    ],
    ["broker-b does not answer"],
)


def show(state: ViewState, width: int, height: int, sample: Sample | None = None, note: str = "") -> list[str]:
    drawn = draw(sample or make_sample(), state, DETAIL, note, width, height)
    assert len(drawn) == height
    lines = [line.plain for line in drawn]
    assert all(len(line) <= width for line in lines), [line for line in lines if len(line) > width]
    assert all(char.isprintable() for line in lines for char in line)
    return lines


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("tab", Tab)
def test_a_list_fits(tab: Tab, width: int, height: int) -> None:
    lines = show(ViewState(tab=tab), width, height, make_sample(groups=200))
    assert "2 brokers" in lines[0] or width < 40
    assert lines[2].startswith("broker-b: does")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_detail_fits_and_scrolls(width: int, height: int) -> None:
    state = ViewState(opened=(Tab.GROUPS, "billing"))
    first = show(state, width, height)
    assert first[3].startswith("group billing")
    state.top = 10**9
    last = show(state, width, height)
    assert "members (0)" in last[-2]
    assert state.top < 120


def test_what_does_not_fit_beside_a_row_is_below_it() -> None:
    columns = ["topic", ">queue", "owner", "next message"]
    owner, message_id = "10.0.0.7@4711#48c052b544cc617b", "7F000001000026A20000000000000000"
    detail = Detail("group billing", [], [Section("queues", columns, [("orders", "0", owner, message_id)])], [])

    def show_detail(width: int) -> list[str]:
        state = ViewState(opened=(Tab.GROUPS, "billing"))
        lines = [line.plain.rstrip() for line in draw(make_sample(), state, detail, "", width, 24)]
        return lines[lines.index("queues (1)") + 1 : -1]

    assert show_detail(140)[1] == f"orders      0  {owner}  {message_id}"
    assert show_detail(70)[:3] == ["topic   queue  owner", f"orders      0  {owner}", f"  next message {message_id}"]
    assert show_detail(40)[:4] == [
        "topic   queue",
        "orders      0",
        f"  owner {owner}",
        f"  next message {message_id}"[:40],
    ]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_help_typing_and_nothing_fit(width: int, height: int) -> None:
    assert any("groups, topics" in line for line in show(ViewState(shows_help=True), width, height)) or width < 40
    assert show(ViewState(is_typing=True, filter="x" * 300), width, height)[-1].startswith("/xxx")
    drawn = draw(None, ViewState(), None, "connecting to 127.0.0.1:9876", width, height)
    assert drawn[0].plain.startswith("connecting to 127.0") and len(drawn) == height


def test_a_small_terminal_shows_what_matters_and_a_wide_one_all() -> None:
    small = [column.title for column in choose_columns(Tab.GROUPS, 80)]
    assert small[:6] == ["group", "lag", "wait", "growth", "in/s", "out/s"]
    wide = [column.title for column in choose_columns(Tab.GROUPS, 140)]
    assert set(small) < set(wide) and {"left", "members", "topics", "queues"} <= set(wide)
    assert [column.title for column in choose_columns(Tab.BROKERS, 80)][:6] == [
        "broker",
        "role",
        "in/s",
        "out/s",
        "disk",
        "behind",
    ]
    assert [column.title for column in choose_columns(Tab.TOPICS, 5)] == ["topic"]


def test_lines_are_sorted_scrolled_and_marked() -> None:
    state = ViewState()
    lines = show(state, 80, 24)
    assert [line.split()[0] for line in lines[3:7]] == ["group", "group-2", "group-1", "group-0"]
    assert "lag*" in lines[3] and "sorted by lag" in lines[1] and lines[-1].rstrip().endswith("q quit")
    assert "2,000" in lines[4] and "1m00s" in lines[4]
    many = make_sample(groups=100)
    state.press(Key.END, many, count_room(24))
    lines = show(state, 80, 24, many)
    assert lines[-2].startswith("group-0 ")
    drawn = draw(many, state, None, "", 80, 24)
    assert [str(line.style) for line in drawn[4:-1]].count("reverse") == 1


def test_states_are_shown() -> None:
    assert "PAUSED" in show(ViewState(paused=True), 80, 24)[0]
    assert "with 'zzz'" in show(ViewState(filter="zzz"), 80, 24)[4]
    assert show(ViewState(), 80, 24, note="no broker answers")[2].startswith("no broker answers (and 1 more)")
    assert "1 silent" in show(ViewState(), 80, 24)[0]


def test_facts_are_wrapped_and_the_foot_keeps_help_and_quit() -> None:
    facts = ["clustering push", "2 members", "lag 1,000,000", "wait 3h05m", "fetches 12/s", "3 dead letters"]
    detail = Detail("group billing", facts, [], [])
    state = ViewState(opened=(Tab.GROUPS, "billing"))
    for width in (40, 80):
        lines = [line.plain.rstrip() for line in draw(make_sample(), state, detail, "", width, 24)]
        assert all(any(fact in line for line in lines) for fact in facts)
    assert show(ViewState(), 40, 24)[-1].rstrip().endswith("? help  q quit")
