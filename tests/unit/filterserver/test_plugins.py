"""Installed filter classes: loaded from the server's own disk, if others cannot write there."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca._filterserver.plugins import load_plugins, run_plugin
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from eruca.errors import ConfigError, FilterFailed

SOURCE = """
from eruca._filterserver.plugins import FilterClass, FilterMessage

class EuOnly(FilterClass):
    def matches(self, message: FilterMessage) -> bool:
        return message.properties["region"] == "eu" and message.topic == "orders" and message.body != b""

class NotAFilter:
    pass
"""


def install(directory: Path, name: str = "filters.py", source: str = SOURCE) -> Path:
    directory.mkdir(mode=0o755, exist_ok=True)
    path = directory / name
    path.write_text(source)
    path.chmod(0o644)
    return path


def test_classes_are_found_and_asked(tmp_path: Path) -> None:
    install(tmp_path / "p")
    plugins = load_plugins(tmp_path / "p")
    assert list(plugins) == ["EuOnly"]
    messages = [Record("orders", body=b"x", properties=encode_properties({"region": where})) for where in ("eu", "us")]
    assert run_plugin("EuOnly", plugins["EuOnly"], messages).wanted == [0]
    with pytest.raises(FilterFailed, match="EuOnly failed: KeyError"):
        run_plugin("EuOnly", plugins["EuOnly"], [Record("orders")])


def test_what_others_can_write_is_not_run(tmp_path: Path) -> None:
    path = install(tmp_path / "p", source="raise SystemExit('run')")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="writable by others"):
        load_plugins(tmp_path / "p")
    path.chmod(0o644)
    path.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="writable by others"):
        load_plugins(tmp_path / "p")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a.py": "1 / 0"}, "ZeroDivisionError"),
        ({"a.py": SOURCE, "b.py": SOURCE}, "two filter classes are named EuOnly"),
    ],
    ids=["broken", "twice"],
)
def test_a_directory_that_cannot_be_loaded_is_refused(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    for name, source in files.items():
        install(tmp_path / "p", name, source)
    with pytest.raises(ConfigError, match=reason):
        load_plugins(tmp_path / "p")


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such directory"):
        load_plugins(tmp_path / "none")
