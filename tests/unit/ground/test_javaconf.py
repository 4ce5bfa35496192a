"""Changing a `.conf` file: what nobody asked to change stays as it is, and a crash leaves one whole file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.javaconf import parse_conf, read_conf, set_keys, write_conf
from eruca.errors import ConfigError

FILE = """\
# my broker
listenPort=10911

 fileReservedTime = 72
#fileReservedTime=1
! another comment
deleteWhen: 04
fileReservedTime=73
brokerName broker-\\
    a
"""
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20).map(str.strip)


def test_comments_and_order_stay() -> None:
    assert set_keys(FILE, {"fileReservedTime": "48", "deleteWhen": "03;04", "brokerName": "b", "new": "1"}) == (
        "# my broker\nlistenPort=10911\n\nfileReservedTime=48\n#fileReservedTime=1\n! another comment\n"
        "deleteWhen=03;04\nbrokerName=b\nnew=1\n"
    )
    assert set_keys(FILE, {}) == FILE
    assert set_keys("", {"a": "b"}) == "a=b\n"
    assert set_keys("a=1\r\nb=2\r\n", {"b": "3"}) == "a=1\r\nb=3\r\n"


def test_what_is_continued_at_the_end_of_the_file_stays() -> None:
    assert set_keys("a=1\\\n  2\nb=3\\", {"c": "4"}) == "a=1\\\n  2\nb=3\\\nc=4\n".replace("3\\\nc", "3\\\nc")
    assert parse_conf("a=1\\\n  2\n") == {"a": "12"}


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=4), st.dictionaries(TEXT.filter(bool), TEXT, max_size=4))
def test_what_is_set_is_read_back(before: dict[str, str], changes: dict[str, str]) -> None:
    text = set_keys(set_keys("# first\n", before), changes)
    assert parse_conf(text) == before | changes
    assert text.startswith("# first\n")


def test_a_file_keeps_its_permissions_and_a_link_stays_one(tmp_path: Path) -> None:
    file, link = tmp_path / "real" / "broker.conf", tmp_path / "broker.conf"
    file.parent.mkdir()
    file.write_text("# mine\na=1\n")
    file.chmod(0o640)
    link.symlink_to(file)
    write_conf(link, {"a": "2", "b": "x y"})
    assert link.is_symlink()
    assert file.read_text() == "# mine\na=2\nb=x y\n"
    assert read_conf(link) == {"a": "2", "b": "x y"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(file.parent) == ["broker.conf"]


def test_a_file_that_cannot_be_written_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="folder cannot be written"):
        write_conf(tmp_path / "folder", {"a": "1"})
    (tmp_path / "odd.conf").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        write_conf(tmp_path / "odd.conf", {"a": "1"})
    assert (tmp_path / "odd.conf").read_bytes() == b"\xff\xfe"
    assert sorted(os.listdir(tmp_path)) == ["folder", "odd.conf"]
