"""The tutorial, followed literally by somebody who has never seen it, in an empty directory, to the end."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.needs import needs
from tests.paths import REPOSITORY
from tests.shipping.browsed import read_sentences
from tests.shipping.following import Terminal, follow, list_children, read_steps
from tests.shipping.installing import keep_environment, list_tools

PAGE = REPOSITORY / "docs" / "tutorial.md"


@pytest.fixture(autouse=True)
def forbid_blocking_calls() -> None:
    """Allow them: the loop of the browser runs below these tests."""


@pytest.mark.whole
@needs("jre", "chromium")
def test_the_tutorial_works_to_the_end(compiled_wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    began = time.monotonic()
    steps = list(follow(PAGE, folder, make_environment(compiled_wheel, tmp_path)))
    assert len(steps) == len(read_steps(PAGE))
    note_figures(f"tutorial: {len(steps)} steps in {time.monotonic() - began:.0f} s")


def make_environment(wheel: Path, folder: Path) -> dict[str, str]:
    """A machine without a compiler, on which `pip install eruca` finds the wheel."""
    tools = list_tools(folder / "tools", os.environ["PATH"].split(os.pathsep))
    python = tools / "python3"
    places = [place for place in os.environ["PATH"].split(os.pathsep) if ".venv" not in place]
    base = shutil.which("python3", path=os.pathsep.join(places))
    assert base is not None
    python.symlink_to(base)
    kept = keep_environment()
    wheels = " ".join((str(wheel.parent), *kept.get("PIP_FIND_LINKS", "").split()))
    return {**kept, "PATH": str(tools), "HOME": str(folder), "PIP_FIND_LINKS": wheels, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\nfalse\n```\n", "`false` failed"),
        ("```sh\necho one\n```\n\n```\ntwo\n```\n", "['two'] not in"),
        (
            "Save this as `x.py`:\n\n```python\nprint(1)\n```\n\n```sh\npython3 x.py\n```\n\n```\n2\n```\n",
            "['2'] not in",
        ),
    ],
)
def test_a_page_that_is_wrong_is_found(text: str, said: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "empty").mkdir()
    with pytest.raises(AssertionError) as caught:
        list(follow(page, tmp_path / "empty", {"PATH": "/usr/bin:/bin"}))
    assert said in str(caught.value)


def test_terminals_are_followed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh second\necho begun; tail -f /dev/null\n```\n\n```\nbegun\n```\n\n"
        "```sh\nvalue=kept\necho $value \\\n    twice\n```\n\n```\nkept twice\n```\n\n"
        "```sh ctrl-c\necho waiting; tail -f /dev/null\n```\n\n```\nwaiting\n```\n\n"
        "```sh second ctrl-c\necho again\n```\n\n```\nagain\n```\n"
    )
    (tmp_path / "empty").mkdir()
    assert len(list(follow(page, tmp_path / "empty", {"PATH": "/usr/bin:/bin"}))) == len(read_steps(page)) == 4


def test_ctrl_c_waits_until_the_command_has_begun(tmp_path: Path) -> None:
    """The shell has just been started, and has not read the line yet."""
    terminal = Terminal(tmp_path, {"PATH": "/usr/bin:/bin"})
    try:
        terminal.type("tail -f /dev/null")
        assert list_children(terminal.pid) == []
        terminal.interrupt()
        assert list_children(terminal.pid) == []
    finally:
        terminal.close()


def test_lists_for_a_browser_are_read() -> None:
    text = (
        "1. Open <http://127.0.0.1:8080>.\n2. Type `a. b` into **User**. Copy the password from the\n"
        "   terminal into **Password**. Press **Log in**.\n3. You see `one, two`: and what people do. Then more.\n"
    )
    assert list(read_sentences(text)) == [
        "Open <http://127.0.0.1:8080>",
        "Type `a. b` into **User**",
        "Copy the password from the terminal into **Password**",
        "Press **Log in**",
        "You see `one, two`",
    ]
