"""`eruca up`, `nameserver`, `broker` as processes: what they say, that they work, that they stop with all on disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from eruca._cli import running
from eruca._cli.recovering import RecoveryWatch
from eruca._cli.uppanel import draw_panel, find_activation
from eruca.errors import TableUnsaved
from tests.integration.cli.upprocess import SECONDS_MAX, Up, choose_ports, make_command, make_environment, run_eruca
from tests.interop.javapeer import find_ports
from tests.patience import PATIENCE_S


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_up_stops_cleanly_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        assert up.facts["data"] == "eruca-data"
        assert up.facts["nameservers"] == up.address
        up.run_json("send", "hello", "before", "--keys", "k")
        store = tmp_path / "eruca-data" / "store"
        assert (store / "abort").exists()
        assert up.end() == (0, "")
    assert not (store / "abort").exists()
    assert {path.name for path in (store / "config").iterdir()} >= {"topics.json", "subscriptionGroup.json"}
    assert (store / "commitlog" / ("0" * 20)).stat().st_size == 64 * 1024 * 1024
    assert run_eruca("store", "verify", store, cwd=tmp_path).returncode == 0
    with Up(tmp_path, *up.arguments) as again:
        (kept,) = again.run_json("tail", "hello")
        assert (kept["body"], kept["offset"]) == ("before", 0)
        (sent,) = again.run_json("send", "hello", "after")
        assert sent["status"] == "STORED"
        assert again.end(signal.SIGINT)[0] == 0


def test_up_that_could_not_save_a_table_says_which_and_exits_with_an_error(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.run_json("send", "hello", "before")
        # Where the new table is written first there is something else.
        (tmp_path / "eruca-data" / "store" / "config" / "consumerOffset.json.tmp").mkdir()
        status, said = up.end()
    assert status == 1
    assert "offsets could not be saved" in said
    assert not (tmp_path / "eruca-data" / "store" / "abort").exists()  # the log was closed all the same


def test_up_recovers_after_it_was_killed(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.run_json("send", "hello", "message {n}", "--count", "50")
        assert up.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with Up(tmp_path) as again:
        assert len(again.run_json("tail", "hello", "--from", "earliest")) == 50


async def test_a_server_that_cannot_stop_cleanly_does_not_keep_the_others_from_stopping() -> None:
    stopped: list[str] = []

    class Server:
        def __init__(self, name: str) -> None:
            self.name = name

        async def start(self) -> None:
            """Nothing to do."""

        async def stop(self) -> None:
            stopped.append(self.name)
            raise TableUnsaved(f"{self.name} could not be saved")

        def look_again(self) -> None:
            """Nothing to do."""

    with pytest.raises(TableUnsaved, match="first could not be saved"):
        await running._stop([Server("first"), Server("second")])
    assert stopped == ["first", "second"]


def test_up_shows_where_everything_is_and_what_to_type(tmp_path: Path) -> None:
    ports = choose_ports()
    process = subprocess.Popen(
        make_command("up", *ports),
        cwd=tmp_path,
        env=make_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    shown = ""
    while "Ctrl-C" not in shown:
        line = process.stdout.readline()
        assert line, process.communicate()
        shown += line
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    assert f"127.0.0.1:{ports[1]}" in shown
    assert f"127.0.0.1:{ports[3]}" in shown
    assert f'eruca send -n 127.0.0.1:{ports[1]} hello "my first message"' in shown


def test_the_panel_leaves_out_what_is_as_by_default() -> None:
    facts = {"broker": "127.0.0.1:10911", "name": "b", "cluster": "C", "fast": "127.0.0.1:10909"}
    console = Console(width=200)
    with console.capture() as capture:
        console.print(draw_panel("127.0.0.1:9876", facts, Path("eruca-data")))
    assert "eruca tail hello --follow" in capture.get()
    assert " -n " not in capture.get()


def test_the_panel_has_the_account_of_commands() -> None:
    facts = {"broker": "127.0.0.1:10911", "name": "b", "cluster": "C", "fast": "127.0.0.1:10909"}
    console = Console(width=200)
    with console.capture() as capture:
        console.print(draw_panel("127.0.0.1:9876", facts, Path("eruca-data"), "conf/tools.yml"))
    assert "eruca tail --account conf/tools.yml hello --follow" in capture.get()
    assert "the account of your application" in capture.get()


def test_the_panel_says_how_to_find_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make up` runs a program of .venv, which a second terminal does not find."""
    program = tmp_path / "eruca"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path.parent))
    assert find_activation(program) is None
    (tmp_path / "activate").touch()
    assert find_activation(program) == tmp_path / "activate"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_activation(program) is None


def test_tls_only_needs_a_broker_that_uses_it(tmp_path: Path) -> None:
    finished = run_eruca("up", "--option", "tls.server.mode=enforcing", cwd=tmp_path)
    assert finished.returncode == 1
    assert "set tls.enable=true" in finished.stderr


def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with taken_port() as port:
        free = ["--nameserver-port", str(find_ports())]
        for arguments, says in (
            (["up", "--nameserver-port", str(port)], "--nameserver-port 9877"),
            (["up", *free, "--listen-port", str(port)], f"--listen-port {port + 10}"),
            (["nameserver", "--listen-port", str(port)], "--listen-port 9877"),
        ):
            finished = run_eruca(*arguments, cwd=tmp_path)
            assert finished.returncode == 1
            assert f"cannot listen on 127.0.0.1:{port}" in finished.stderr
            assert says in finished.stderr
    # What had been started by then has been stopped again.
    assert not (tmp_path / "eruca-data" / "store" / "abort").exists()


def test_an_address_of_clients_that_is_not_of_this_machine_is_not_a_taken_port(tmp_path: Path) -> None:
    """Where brokerIP1 is a name that others have: what to listen on has to be said."""
    finished = run_eruca("up", "--insecure", "--option", "brokerIP1=192.0.2.1", cwd=tmp_path)
    assert finished.returncode == 1
    assert "cannot listen on 192.0.2.1:9876" in finished.stderr
    assert "set bindAddress (--host)" in finished.stderr and "another" not in finished.stderr


def test_one_directory_is_for_one_process(tmp_path: Path) -> None:
    with Up(tmp_path):
        finished = run_eruca("up", *choose_ports(), cwd=tmp_path)
        assert finished.returncode == 1
        assert "is in use by another process" in finished.stderr


def test_name_server_and_broker_run_apart_from_official_files(tmp_path: Path) -> None:
    port, broker_port = find_ports(), find_ports(-2, 1)
    (tmp_path / "namesrv.conf").write_text(f"listenPort={port}\nserverWorkerThreads=8\n", encoding="utf-8")
    conf = f"""
brokerClusterName = DefaultCluster
brokerName = broker-x
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr = 127.0.0.1:{port}
mappedFileSizeCommitLog = 1048576
maxHashSlotNum = 500
maxIndexNum = 2000
sendMessageThreadPoolNums = 16
no.such.key = 1
listenPrt = {broker_port}
"""
    (tmp_path / "broker.conf").write_text(conf, encoding="utf-8")
    with Up(tmp_path, "-c", "namesrv.conf", command="nameserver") as nameserver:
        assert nameserver.address == f"127.0.0.1:{port}"
        listen = ["--listen-port", str(broker_port)]
        with Up(tmp_path, "-c", "broker.conf", *listen, command="broker") as broker:
            assert broker.facts["broker"] == f"127.0.0.1:{broker_port}"
            assert broker.facts["name"] == "broker-x"
            (sent,) = nameserver.run_json("send", "hello", "there")
            assert sent["broker"] == "broker-x"
            status, said = broker.end()
        assert status == 0
        assert said.count("sendMessageThreadPoolNums has no effect here") == 1
        assert "listenPrt is not a known key; did you mean listenPort?" in said
        assert "no.such.key is not a known key" in said
        # A broker that said goodbye is not in the route anymore.
        said = nameserver.run("tail", "hello").stderr
        assert f"topic hello has no route: name server 127.0.0.1:{port} does not know it" in said
        assert "no broker is registered with it" in said
        status, said = nameserver.end()
        assert status == 0
        assert "serverWorkerThreads has no effect here" in said


def test_the_demo_shows_every_step(tmp_path: Path) -> None:
    finished = run_eruca("demo", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "my first message" in finished.stdout
    assert "tags=demo  message 3" in finished.stdout
    assert "stopped cleanly" in finished.stdout
    assert list(tmp_path.iterdir()) == []


async def test_the_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: asyncio.Queue[int] = asyncio.Queue()
    monkeypatch.setattr("eruca._cli.running.os._exit", ended.put_nowait)
    with running._listen_to_signals(lambda: None) as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stopping.wait(), PATIENCE_S)
        assert ended.empty()
        os.kill(os.getpid(), signal.SIGINT)
        assert await asyncio.wait_for(ended.get(), PATIENCE_S) == 128 + signal.SIGINT


def test_a_long_recovery_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr("eruca._cli.recovering.time.monotonic", lambda: now)
    (tmp_path / "00000000000000000000").write_bytes(bytes(3 * 1024 * 1024))
    watch = RecoveryWatch(tmp_path)
    watch(1024 * 1024)
    assert caplog.messages == []
    now = 101.5
    watch(1024 * 1024)
    watch(1)
    watch.close()
    assert caplog.messages == ["recovering the store: 2 of at most 3 MiB read"]
