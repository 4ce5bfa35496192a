"""The `eruca store` commands as a user meets them: output, exit status, errors, help."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from eruca import __version__
from eruca._cli.main import COMMANDS, main
from eruca._cli.output import (
    format_bytes,
    format_time,
    format_yaml,
    parse_time,
    parse_time_ms,
    show_progress,
)
from eruca._ground.printable import show_safely
from eruca._store.messagestore import open_store
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.store_samples import OPTIONS, PROPERTIES, fill_store, find_segment, flip, hash_files


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the tests of this module only look at."""
    root = tmp_path_factory.mktemp("cli") / "store"
    fill_store(root)
    return root


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert "Traceback" not in result.output
    return result


def run_json(*arguments: str | Path) -> Any:
    result = run(*arguments, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# --- the four commands ----------------------------------------------------------------------------------------------


def test_stat(root: Path) -> None:
    before = hash_files(root)
    summary = run_json("store", "stat", root)
    assert summary["messages"] == 120
    assert summary["topics"] == [
        {"topic": "Bills", "queues": 1, "messages": 30},
        {"topic": "Orders", "queues": 2, "messages": 90},
    ]
    shown = run("store", "stat", root, "--queues").stdout
    assert "Orders" in shown
    assert "max offset" in shown
    assert "topics.json" in run("store", "stat", root).stdout
    assert yaml.safe_load(run("store", "stat", root, "-o", "yaml").stdout) == summary
    assert hash_files(root) == before


def test_dump(root: Path) -> None:
    result = run("store", "dump", root, "--topic", "Orders", "--queue", "1", "--limit", "3", "-o", "json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert "there are more" in result.stderr
    documents = run("store", "dump", root, "--topic", "Orders", "--queue", "1", "--limit", "3", "-o", "yaml")
    assert list(yaml.safe_load_all(documents.stdout)) == rows
    everything = run("store", "dump", root, "--limit", "0", "-o", "json")
    assert len(everything.stdout.splitlines()) == 120
    assert not everything.stderr
    table = run("store", "dump", root, "--key", "key-17")
    assert "body 17" in table.stdout
    assert "body 18" not in table.stdout


def test_dump_takes_times_and_positions(root: Path) -> None:
    first = json.loads(run("store", "dump", root, "--limit", "1", "-o", "json").stdout)
    same = ["--from-time", first["stored_at"], "--to-time", first["stored_at"], "-o", "json"]
    assert json.loads(run("store", "dump", root, *same).stdout) == first
    behind = run("store", "dump", root, "--from-position", str(first["size"]), "--limit", "1", "-o", "json")
    assert json.loads(behind.stdout)["position"] == first["size"]
    assert run("store", "dump", root, "--to-position", "0", "-o", "json").stdout == ""


def test_verify_says_0_for_clean_and_1_for_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    messages = fill_store(root)
    assert run_json("store", "verify", root)["clean"] is True
    assert "clean" in run("store", "verify", root).stdout
    hurt = messages[50]
    path, at = find_segment(root, hurt.position)
    flip(path, at + 90)
    result = run("store", "verify", root, "-o", "json")
    assert result.exit_code == 1
    damage = [item for item in json.loads(result.stdout)["findings"] if item["kind"] == "damage"]
    assert [(item["position"], item["length"]) for item in damage] == [(hurt.position, hurt.size)]
    table = run("store", "verify", root)
    assert table.exit_code == 1
    assert str(hurt.position) in table.stdout
    assert "CRC" in table.stdout


def test_rebuild(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_store(root)
    report = run_json("store", "rebuild", root)
    assert report["records"] == 120
    assert len(report["kept"]) == 2
    shown = run("store", "rebuild", root, "--drop-old")
    assert shown.exit_code == 0
    assert "120 from 0" in shown.stdout
    assert len(list(root.glob("*.old-*"))) == 2
    assert run_json("store", "verify", root)["findings"] == []


def test_rebuild_takes_sizes_from_a_conf_file(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_store(root)
    conf = tmp_path / "broker.conf"
    lines = ["# comment", "brokerName = broker-a", "namesrvAddr=127.0.0.1:9876", "maxIndexNum = 1000", "deleteWhen=04"]
    conf.write_text("\n".join(lines + [f"{key}={value}" for key, value in PROPERTIES.items() if key != "maxIndexNum"]))
    assert run("store", "rebuild", root, "-c", conf, "--drop-old").exit_code == 0
    assert [path.stat().st_size for path in (root / "index").iterdir()] == [40 + 4 * 50 + 20 * 1000]
    # The command line wins over the file.
    assert run("store", "rebuild", root, "-c", conf, "--option", "maxIndexNum=200").exit_code == 0
    assert {path.stat().st_size for path in (root / "index").iterdir()} == {40 + 4 * 50 + 20 * 200}


# --- errors ---------------------------------------------------------------------------------------------------------


def check_one_line(result: Result, *words: str) -> None:
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("eruca: ")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("command", ["stat", "dump", "verify", "rebuild"])
def test_an_error_is_one_line_with_a_hint(root: Path, tmp_path: Path, command: str) -> None:
    check_one_line(run("store", command, tmp_path / "nothing"), "not a directory", "storePathRootDir")
    check_one_line(run("store", command, root / "commitlog"), "not a store", str(root))
    check_one_line(run("store", command, root, "--option", "maxindexnum=5"), "did you mean maxIndexNum?")
    check_one_line(run("store", command, root, "--option", "nonsense=5"), "it has")
    check_one_line(run("store", command, root, "--option", "maxIndexNum"), "KEY=VALUE")
    check_one_line(run("store", command, root, "--option", "maxIndexNum=many"), "whole number")
    check_one_line(run("store", command, root, "--option", "maxIndexNum=0"), "the minimum is")
    bad = tmp_path / "bad.conf"
    bad.write_bytes(b"\xff\xfe")
    check_one_line(run("store", command, root, "-c", bad), "cannot be read")


def test_a_store_in_use_is_not_rebuilt(tmp_path: Path) -> None:
    store = open_store(tmp_path, OPTIONS)
    check_one_line(run("store", "rebuild", tmp_path), "already open")
    store.close()


def test_a_bad_command_line_has_status_2(root: Path) -> None:
    assert run("store", "dump", root, "--from-time", "yesterday").exit_code == 2
    assert run("store", "dump", root, "--limit", "-1").exit_code == 2
    assert run("store", "nothing").exit_code == 2
    assert run("nothing").exit_code == 2


def test_warnings_go_to_stderr(tmp_path: Path) -> None:
    root = tmp_path / "store"
    messages = fill_store(root)
    path, at = find_segment(root, messages[60].position)
    flip(path, at + 5)
    result = run("store", "rebuild", root, "-o", "json")
    assert json.loads(result.stdout)["records"] == 119
    assert "messages 30 to 30 are lost" in result.stderr


# --- help -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["stat", "dump", "verify", "rebuild"])
def test_help_teaches_by_example(command: str) -> None:
    shown = run("store", command, "--help").stdout
    assert "Examples:" in shown
    assert f"eruca store {command} DIR" in shown


def test_main_help_and_version() -> None:
    assert "Start here:" in run("--help").stdout
    assert list(COMMANDS) == main.list_commands(main.make_context("eruca", ["--help"], resilient_parsing=True))
    assert re.fullmatch(
        rf"eruca, version {re.escape(__version__)} \(Python 3\.\d+\.\d+, (compiled|plain)\)\n", run("--version").stdout
    )
    assert "stat" in run("store", "-h").stdout


# --- as a process ---------------------------------------------------------------------------------------------------


def start(*arguments: str | Path, **more: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **more.pop("env", {})}
    command = [sys.executable, "-m", "eruca", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **more)


def test_as_a_process(root: Path) -> None:
    process = start("store", "verify", root, "-o", "json")
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stderr) == (0, b"")
    assert json.loads(stdout)["clean"] is True
    process = start("store", "stat", root / "nothing")
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (1, b"")
    assert stderr.startswith(b"eruca: ")
    assert stderr.count(b"\n") == 1


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_store(root, 600)  # more than a pipe holds, so that the writer must notice
    process = start("store", "dump", root, "--limit", "0", "-o", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["position"] == 0
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_S) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_completion_is_clicks(root: Path) -> None:
    process = start(env={"_ERUCA_COMPLETE": "bash_complete", "COMP_WORDS": "eruca store ", "COMP_CWORD": "2"})
    stdout, _ = process.communicate(timeout=PATIENCE_S)
    assert stdout.split() == [b"plain,diverged", b"plain,dump", b"plain,rebuild", b"plain,stat", b"plain,verify"]


# --- output ---------------------------------------------------------------------------------------------------------

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain_values)
@example(1e-05)
@example(1e16)
def test_yaml_says_what_was_put_in(value: Any) -> None:
    assert yaml.safe_load(format_yaml(value)) == value


@pytest.mark.parametrize(
    "word", ["yes", "Null", "0x10", "1e3", "- a", "a: b", "#", "", " ", "\x1b[0m", "\ud7ff\U0001f600"]
)
def test_yaml_words_that_look_like_something_else(word: str) -> None:
    assert yaml.safe_load(format_yaml({word: [word, {"x": word}]})) == {word: [word, {"x": word}]}


def test_what_strangers_sent_does_not_steer_the_terminal() -> None:
    assert show_safely("a\x1b[31mb\x07\u202e\nc", keep="\n") == "a\\x1b[31mb\\x07\\u202e\nc"


def test_sizes_and_times_for_people() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 5 * 1024**2, 3 * 1024**4)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3.0 TiB",
    ]
    assert format_time(0) == format_time(None) == "-"
    assert format_time(2**62) == str(2**62)
    assert parse_time_ms(format_time(1_700_000_000_123)) == 1_700_000_000_123
    assert parse_time_ms("1700000000123") == 1_700_000_000_123
    assert parse_time_ms(format_time(parse_time("1700000000123"))) == 1_700_000_000_123


def test_progress_shows_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress("walking", 100) as progress:
        assert progress is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with show_progress("walking", 100) as progress:
        assert progress is not None
        progress(60)
    assert "walking" in capsys.readouterr().err
