"""What keys do to the view."""

from __future__ import annotations

from eruca._cli.topview.state import SORTS, Key, Tab, ViewState, name_line
from tests.unit.cli.topview.samples import make_sample

SAMPLE = make_sample()


def press(state: ViewState, *keys: str, room: int = 10) -> ViewState:
    for key in keys:
        state.press(key, SAMPLE, room)
    return state


def list_names(state: ViewState) -> list[str]:
    return [name_line(line) for line in state.list_lines(SAMPLE)]


def test_groups_with_the_largest_lag_come_first() -> None:
    assert list_names(ViewState()) == ["group-2", "group-1", "group-0"]


def test_s_sorts_by_every_column_and_comes_back() -> None:
    state, seen = ViewState(), []
    for _ in SORTS[Tab.GROUPS]:
        seen.append(state.sort_name)
        press(state, "s")
    assert seen == [title for title, _ in SORTS[Tab.GROUPS]] and state.sort_name == seen[0]
    assert press(state, "S").sort_name == seen[-1] == "name"
    assert list_names(state) == ["group-0", "group-1", "group-2"]
    assert list_names(press(state, "r")) == ["group-2", "group-1", "group-0"]
    assert press(state, "3").sort_name == seen[2]
    assert press(state, "9").sort_name == seen[2]


def test_tabs() -> None:
    state = ViewState()
    assert [press(state, Key.TAB).tab for _ in Tab] == [Tab.TOPICS, Tab.BROKERS, Tab.GROUPS]
    assert list_names(press(state, "t")) == ["orders", "audit"]
    assert list_names(press(state, "b")) == ["10.0.0.1:10911", "10.0.0.2:10911"]


def test_a_line_is_selected_and_opened_and_left() -> None:
    state = press(ViewState(), Key.DOWN, "j", Key.UP)
    assert state.selected == 1
    assert press(state, Key.ENTER).opened == (Tab.GROUPS, "group-1")
    assert press(state, Key.DOWN).top == 1 and state.selected == 1
    assert press(state, Key.ESCAPE).opened is None
    assert press(state, Key.END, Key.HOME).selected == 0
    assert press(ViewState(), Key.PAGE_DOWN, room=2).selected == 2


def test_the_selected_line_stays_on_the_screen() -> None:
    state = ViewState(selected=10**9)
    state.scroll(100, 10)
    assert (state.selected, state.top) == (99, 90)
    state.selected = 5
    state.scroll(100, 10)
    assert state.top == 5
    state.scroll(0, 10)
    assert (state.selected, state.top) == (0, 0)


def test_names_are_filtered_while_typing() -> None:
    state = press(ViewState(), "/", "q", Key.BACK, "-", "1")
    assert (state.is_typing, state.is_over, list_names(state)) == (True, False, ["group-1"])
    press(state, Key.ENTER)
    assert (state.is_typing, list_names(state)) == (False, ["group-1"])
    assert list_names(press(state, Key.ESCAPE)) == ["group-2", "group-1", "group-0"]


def test_pause_help_and_quit() -> None:
    state = ViewState()
    assert [press(state, key).paused for key in ("p", " ")] == [True, False]
    assert [press(state, key).shows_help for key in ("?", "s")] == [True, False]
    assert state.sort_name == "lag"  # the key only closed the help
    assert press(state, "q").is_over


def test_nothing_is_opened_from_an_empty_list() -> None:
    state = press(ViewState(), "/", "z", Key.ENTER, Key.ENTER)
    assert state.opened is None
    state.press(Key.ENTER, None, 10)
    assert state.opened is None
