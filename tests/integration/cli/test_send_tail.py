"""`eruca send` and `eruca tail` against a running `eruca up`. tests/interop has the same against the Java broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca._admin.storedmessages import describe_message as describe_stored
from eruca._cli.messagerows import describe_message
from eruca._client.message import Message
from eruca._client.produce.outgoing import DELAY_LEVELS_MS
from eruca._wire.bodies import MessageQueue
from eruca._wire.compression import compress
from eruca._wire.record import Record
from eruca._wire.sysflag import COMPRESSION_ZLIB, set_compression
from tests.integration.cli.upprocess import SECONDS_MAX, Up, make_command, make_environment, run_eruca
from tests.interop.javapeer import find_ports


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up")) as running:
        yield running


def bodies(rows: list[Any]) -> list[str]:
    return [row["body"] for row in rows]


def follow(up: Up, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        make_command("tail", *arguments, "--follow", "-o", "json", "-n", up.address),
        cwd=up.directory,
        env=make_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_is_sent_is_read(up: Up) -> None:
    (sent,) = up.run_json(
        "send", "first", "héllo", "--tags", "a", "--keys", "k1 k2", "--property", "who=me", "--property", "x=y=z"
    )
    assert sent["status"] == "STORED"
    (row,) = up.run_json("tail", "first")
    assert (row["body"], row["tags"], row["keys"]) == ("héllo", "a", ["k1", "k2"])
    assert (row["properties"]["who"], row["properties"]["x"]) == ("me", "y=z")
    assert (row["message_id"], row["queue"], row["offset"]) == (sent["message_id"], sent["queue"], sent["offset"])
    people = up.run("tail", "first").stdout
    assert "tags=a  keys=k1 k2  héllo" in people
    assert up.run("send", "first", "x").stdout.count("STORED") == 1


def test_many_messages_are_summed_up(up: Up) -> None:
    assert up.run("send", "many", "number {n}", "--count", "200").stdout == "200 messages are stored in topic many\n"
    rows = up.run_json("tail", "many", "--from", "earliest")
    assert {row["body"] for row in rows} == {f"number {n}" for n in range(1, 201)}
    assert [row["stored_at"] for row in rows] == sorted(row["stored_at"] for row in rows)
    assert len(up.run_json("tail", "many")) == 10
    assert len(up.run_json("tail", "many", "--count", "3")) == 3


def test_messages_of_one_shard_keep_their_order(up: Up) -> None:
    sent = up.run_json("send", "ordered", *[str(n) for n in range(20)], "--shard", "order-7")
    assert len({row["queue"] for row in sent}) == 1
    assert bodies(up.run_json("tail", "ordered", "--from", "earliest")) == [str(n) for n in range(20)]


def test_lines_of_standard_input_are_messages(up: Up) -> None:
    finished = up.run("send", "lines", "-o", "json", stdin="one\ntwo\r\n\nfour\n\n")
    assert len(finished.stdout.splitlines()) == 3
    assert finished.stderr == "eruca: blank lines skipped: 2\n"
    assert "standard input has no message: nothing was sent" in up.run("send", "lines", stdin="\n").stderr
    assert finished.returncode == 0
    assert sorted(bodies(up.run_json("tail", "lines"))) == ["four", "one", "two"]


def test_tags_and_places_to_begin(up: Up) -> None:
    up.run_json("send", "tagged", "1", "--tags", "a", "--shard", "s")
    up.run_json("send", "tagged", "2", "--tags", "b", "--shard", "s")
    (third,) = up.run_json("send", "tagged", "3", "--tags", "c", "--shard", "s")
    assert bodies(up.run_json("tail", "tagged", "--tags", "a || c", "--from", "earliest")) == ["1", "3"]
    assert bodies(up.run_json("tail", "tagged", "--tags", "b")) == ["2"]
    assert up.run_json("tail", "tagged", "--from", "latest") == []
    (last,) = up.run_json("tail", "tagged", "--count", "1")
    assert last["message_id"] == third["message_id"]
    assert bodies(up.run_json("tail", "tagged", "--from", last["stored_at"]))[-1] == "3"
    assert bodies(up.run_json("tail", "tagged", "--from", "2020-01-01")) == ["1", "2", "3"]


def test_a_group_goes_on_where_it_stopped(up: Up) -> None:
    up.run_json("send", "shared", "1", "2", "3", "--shard", "s")
    assert bodies(up.run_json("tail", "shared", "--group", "g", "--count", "2")) == ["1", "2"]
    assert bodies(up.run_json("tail", "shared", "--group", "g")) == ["3"]
    assert up.run_json("tail", "shared", "--group", "g") == []
    assert bodies(up.run_json("tail", "shared", "--group", "other")) == ["1", "2", "3"]


def test_follow_waits_for_the_topic_and_for_messages_and_ends_with_ctrl_c(up: Up) -> None:
    process = follow(up, "later")
    assert process.stdout is not None
    assert process.stderr is not None
    assert "topic later does not exist yet; waiting for it" in process.stderr.readline()
    for body in ("1", "2"):
        up.run_json("send", "later", body, "--shard", "s")
        assert json.loads(process.stdout.readline())["body"] == body
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=SECONDS_MAX) == ("", "")
    assert process.returncode == 0


def test_follow_ends_when_enough_was_shown(up: Up) -> None:
    process = follow(up, "enough", "--count", "2")
    assert process.stderr is not None
    process.stderr.readline()
    up.run_json("send", "enough", "1", "2", "3", "--shard", "s")
    shown, _ = process.communicate(timeout=SECONDS_MAX)
    assert bodies([json.loads(line) for line in shown.splitlines()]) == ["1", "2"]
    assert process.returncode == 0


def test_a_closed_pipe_ends_it_quietly(up: Up) -> None:
    up.run("send", "piped", "{n}" + "x" * 5000, "--count", "200")
    process = subprocess.Popen(
        make_command("tail", "piped", "--from", "earliest", "-n", up.address),
        cwd=up.directory,
        env=make_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, errors) == (141, "")


def test_a_delayed_message_waits_in_the_delay_topic(up: Up) -> None:
    up.run_json("send", "delayed", "x", "--delay-level", "18")
    assert up.run_json("tail", "delayed") == []
    (kept,) = up.run_json("tail", "SCHEDULE_TOPIC_XXXX", "--from", "earliest")
    assert (kept["properties"]["REAL_TOPIC"], kept["properties"]["DELAY"]) == ("delayed", "18")
    up.run_json("send", "delayed", "x", "--delay", "2h")
    levels = [row["properties"]["DELAY"] for row in up.run_json("tail", "SCHEDULE_TOPIC_XXXX", "--from", "earliest")]
    assert levels == ["18", "18"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tail", "nowhere"], "topic nowhere has no route: name server 127.0.0.1:"),
        (["tail", "nowhere"], "the first message to it creates it: eruca send -n 127.0.0.1:"),
        (["send", "SCHEDULE_TOPIC_XXXX", "x"], "only brokers send to the topic SCHEDULE_TOPIC_XXXX"),
        (["send", "t", ""], "the body is empty"),
    ],
)
def test_errors_say_what_to_do(up: Up, arguments: list[str], says: str) -> None:
    finished = up.run(*arguments)
    assert finished.returncode == 1
    assert says in finished.stderr
    assert finished.stdout == ""


def test_no_name_server_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{find_ports()}"
    for command in (["send", "t", "x"], ["tail", "t"], ["tail", "t", "--follow"]):
        finished = run_eruca(*command, "-n", nobody, cwd=tmp_path)
        assert finished.returncode == 1
        assert f"no name server answers: cannot connect to {nobody}" in finished.stderr
        assert "`eruca up` starts one" in finished.stderr
    assert run_eruca("send", "t", "x", "-n", "nowhere", cwd=tmp_path).returncode == 2
    for time in ("yesterday", "99999999999999999"):
        assert run_eruca("tail", "t", "--from", time, cwd=tmp_path).returncode == 2


def test_the_variable_of_java_names_the_name_server(up: Up) -> None:
    finished = run_eruca("send", "first", "x", cwd=up.directory, environment={"NAMESRV_ADDR": up.address})
    assert finished.returncode == 0, finished.stderr


def test_a_delay_that_brokers_do_not_have_is_a_usage_error(up: Up) -> None:
    finished = up.run("send", "t", "x", "--delay", "45s")
    assert finished.returncode == 2 and "the nearest are 30 s and 1 min" in finished.stderr


@pytest.mark.parametrize("arguments", [["--delay", "soon"], ["--delay", "30"], ["--delay", "1m", "--delay-level", "5"]])
def test_a_delay_that_is_none_is_a_usage_error(up: Up, arguments: list[str]) -> None:
    finished = up.run("send", "t", "x", *arguments)
    assert finished.returncode == 2
    assert "--delay" in finished.stderr


def test_the_delays_of_the_help_are_those_brokers_have(up: Up) -> None:
    help_text = " ".join(up.run("send", "--help").stdout.split())
    assert "1s 5s 10s 30s, 1m to 10m, 20m, 30m, 1h or 2h" in help_text
    minutes = [*range(1, 11), 20, 30, 60, 120]
    assert [level // 1000 for level in DELAY_LEVELS_MS] == [1, 5, 10, 30, *[60 * minute for minute in minutes]]


def test_the_account_comes_from_the_environment(up: Up) -> None:
    half = run_eruca("send", "first", "x", "-n", up.address, cwd=up.directory, environment={"ERUCA_ACCESS_KEY": "me"})
    assert half.returncode == 1
    assert "an access key needs a secret key" in half.stderr
    keys = {"ERUCA_ACCESS_KEY": "me", "ERUCA_SECRET_KEY": "12345678"}
    for command in (["send", "first", "x"], ["tail", "first"]):
        whole = run_eruca(*command, "-n", up.address, cwd=up.directory, environment=keys)
        assert whole.returncode == 0, whole.stderr


@pytest.mark.parametrize("module", ["eruca._cli.send", "eruca._cli.tail", "eruca._client.produce.producer"])
def test_what_starts_often_imports_only_what_it_uses(module: str) -> None:
    slow = {"eruca._broker", "lark", "lz4", "opentelemetry", "prometheus_client", "rich", "urllib.request", "zstandard"}
    script = f"import sys, {module}; print(sorted({slow} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, env=make_environment(), capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_bodies_are_shown_as_their_sender_wrote_them() -> None:
    def describe(record: Record) -> dict[str, Any]:
        return describe_message(describe_stored(Message(record, MessageQueue("b", 0, "t"))))

    flag = set_compression(0, COMPRESSION_ZLIB)
    packed = Record("t", body=compress(b"hello" * 100), sys_flag=flag)
    assert describe(packed)["body"] == "hello" * 100
    assert describe(Record("t", body=b"\xff\xfe"))["body_base64"] == "//4="
    assert describe(Record("t", body=b"not packed", sys_flag=flag))["body"] == "not packed"
