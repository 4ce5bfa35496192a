"""`--watch`, completion in a shell, and confirmation on a terminal: what needs a process of its own, or a terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.broker.conftest import allow_new_files
from tests.integration.cli.commands import Commands
from tests.integration.cli.upprocess import SECONDS_MAX, Up, make_command, make_environment, run_eruca

__all__ = ["allow_new_files"]


@contextmanager
def in_terminal(cli: Commands, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a command on a terminal; yields it, and where to read and write."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        make_command(*arguments, "-n", cli.nameserver),
        env=make_environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        os.close(ours)


def read_until(descriptor: int, text: str, count: int = 1) -> str:
    """Read until a text was there so often. A command that ends before is an error."""
    found = ""
    while found.count(text) < count:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            part = b""
        assert part, found
        found += part.decode(errors="replace")
    return found


def test_json_is_written_again_and_again(cli: Commands) -> None:
    process = subprocess.Popen(
        make_command("topic", "show", "orders", "--watch=0.1", "-o", "yaml", "-n", cli.nameserver),
        env=make_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen = 0
    while seen < 3:
        line = process.stdout.readline()
        assert line
        seen += line == "name: orders\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0


def test_a_screen_is_drawn_again_and_again(cli: Commands) -> None:
    with in_terminal(cli, "broker", "list", "--watch", "0.1") as (process, terminal):
        shown = read_until(terminal, "every 0.1 s: eruca broker list", 3)
        assert "embedded" in shown and "\x1b[H" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 0


def test_a_watch_goes_on_while_nobody_answers(cli: Commands) -> None:
    with in_terminal(cli, "group", "show", "not-yet", "--watch", "0.1") as (_, terminal):
        assert "not-yet" in read_until(terminal, "trying again", 2)
        cli.run("group", "create", "not-yet")
        assert "trying again" not in read_until(terminal, "every 0.1 s: eruca group show", 1).splitlines()[-1]


def test_a_plan_is_shown_before_the_question(cli: Commands) -> None:
    cli.run("topic", "create", "asked")
    for answer, code in (("n", 1), ("y", 0)):
        with in_terminal(cli, "topic", "delete", "asked") as (process, terminal):
            shown = read_until(terminal, "[y/N]")
            assert "planned" in shown and "Delete topic asked and its messages?" in shown
            os.write(terminal, f"{answer}\n".encode())
            if not code:
                read_until(terminal, "1 done")
            assert process.wait(SECONDS_MAX) == code
    assert "asked" not in [row["name"] for row in cli.rows("topic", "list")]


def read_clocks(descriptor: int, count: int) -> set[str]:
    """Read until the head of `eruca top` showed this many times of day."""
    found: set[str] = set()
    while len(found) < count:
        found |= set(re.findall(r"\d\d:\d\d:\d\d(?=  \d+ broker)", os.read(descriptor, 65536).decode(errors="replace")))
    return found


def test_top_follows_keys_and_its_head_is_live_whatever_is_opened(cli: Commands) -> None:
    with in_terminal(cli, "top", "--interval", "0.2", "--tab", "topics") as (process, terminal):
        read_until(terminal, "orders")
        os.write(terminal, b"/orders\r\r")
        assert "topic orders" in read_until(terminal, "last stored")
        read_clocks(terminal, 3)
        os.write(terminal, b"q")
        assert process.wait(SECONDS_MAX) == 0


@pytest.fixture(scope="module")
def serverless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Commands for a name server that no broker is registered with."""
    with Up(tmp_path_factory.mktemp("alone"), "--listen-port", "0", command="nameserver") as server:
        yield Commands(server.facts["nameserver"])


def test_top_without_brokers_reports_that(tmp_path: Path) -> None:
    with Up(tmp_path, "--listen-port", "0", command="nameserver") as server:
        shown = run_eruca("top", "--once", "-n", server.facts["nameserver"], cwd=tmp_path)
        assert shown.returncode == 1 and "no broker is registered" in shown.stderr and not shown.stdout


@pytest.mark.parametrize(
    "words",
    [
        *("topic list", "topic list --unused", "group list", "dlq list", "txn list", "delayed list", "acl list"),
        *("broker list", "broker stats", "cluster list", "cluster lag", "lag"),
    ],
)
def test_lists_without_brokers_are_errors_with_one_text(serverless: Commands, words: str) -> None:
    result = serverless.run(*words.split(), code=1)
    assert result.stdout == "" and "no broker is registered" in result.stderr
    assert "`eruca broker` starts one" in result.stderr and f"eruca {words} shows" not in result.stderr


# --- completion -------------------------------------------------------------------------------------------------------


def complete(nameserver: str, *words: str) -> list[str]:
    """Return what a shell would suggest for the last word."""
    environment = make_environment() | {
        "_ERUCA_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["eruca", *words]),
        "COMP_CWORD": str(len(words)),
        "NAMESRV_ADDR": nameserver,
    }
    command = ["import sys; sys.argv[0] = 'eruca'", "from eruca._cli.main import main", "main(prog_name='eruca')"]
    done = subprocess.run(
        [make_command()[0], "-c", "; ".join(command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["topic", "show", "ord"], ["orders"]),
        (["send", "ord"], ["orders"]),
        (["tail", "ord"], ["orders"]),
        (["group", "show", "comp"], ["completed"]),
        (["offset", "reset", "comp"], ["completed"]),
        (["offset", "reset", "completed", "ord"], ["orders"]),
        (["broker", "show", "emb"], ["embedded"]),
        (["topic", "create", "x", "--broker", "emb"], ["embedded"]),
        (["topic", "list", "--cluster", "Def"], ["DefaultCluster"]),
        (["broker", "config", "set", "fileReserved"], ["fileReservedTime"]),
        (["topic", "permission", "orders", "R"], ["RW", "R"]),
        (["top"], ["topic"]),
        (["cluster", "promote", "emb"], ["embedded:0"]),
    ],
    ids=" ".join,
)
def test_names_are_completed(cli: Commands, words: list[str], wanted: list[str]) -> None:
    if "comp" in words:
        cli.change("offset", "reset", "completed", "orders", "--to", "latest")
    found = complete(cli.nameserver, *words)
    assert set(wanted) <= set(found)
    assert all(name.startswith(words[-1]) for name in found)


def test_the_option_n_counts_in_completion(cli: Commands) -> None:
    assert complete("127.0.0.1:1", "topic", "show", "-n", cli.nameserver, "ord") == ["orders"]


def test_a_shell_does_not_wait_for_a_cluster_that_is_away() -> None:
    assert complete("127.0.0.1:1", "topic", "show", "ord") == []
