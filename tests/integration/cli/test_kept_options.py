"""Options that an operator changes while a server runs are there after the next start."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from eruca._net.caller import Caller
from eruca._wire.catalog import decode_answer, encode_request_body
from eruca._wire.codes import VERSION_ANNOUNCED, RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import EmptyHeader
from tests.integration.cli.upprocess import Up, choose_ports, run_eruca
from tests.interop.javapeer import find_ports


def ask(address: str, code: RequestCode, body: dict[str, str] | None = None) -> tuple[int, Any]:
    """Ask a server; returns the code of its answer and the body, or the remark of a refusal."""

    async def call() -> tuple[int, Any]:
        caller = Caller()
        try:
            command = make_request(code, EmptyHeader(), encode_request_body(code, body, version=VERSION_ANNOUNCED))
            answer = await caller.call(address, command, 10_000)
            return answer.code, decode_answer(code, answer)[1] if not answer.code else answer.remark
        finally:
            await caller.close()

    return asyncio.run(call())


def show(address: str) -> dict[str, str]:
    found: dict[str, str] = ask(address, RequestCode.GET_BROKER_CONFIG)[1]
    return found


def change(address: str, **wanted: str) -> None:
    assert ask(address, RequestCode.UPDATE_BROKER_CONFIG, wanted)[0] == ResponseCode.SUCCESS


def print_settings(directory: Path, *arguments: str | Path) -> dict[str, tuple[str, str]]:
    finished = run_eruca(*arguments, "-p", "-o", "json", cwd=directory)
    assert finished.returncode == 0, finished.stderr
    rows = [json.loads(line) for line in finished.stdout.splitlines()]
    return {row["key"]: (row["value"], row["source"]) for row in rows}


def test_without_a_file_they_are_kept_in_the_store(tmp_path: Path) -> None:
    ports = choose_ports()
    with Up(tmp_path, *ports) as up:
        change(up.facts["broker"], fileReservedTime="500", brokerPermission="4")
        change(up.facts["broker"], fileReservedTime="600")
        assert ask(up.facts["broker"], RequestCode.UPDATE_BROKER_CONFIG, {"listenPort": "1"})[0] != 0
        nameserver = {"scanNotActiveBrokerInterval": "7777", "serverChannelMaxIdleTimeSeconds": "77"}
        assert ask(up.address, RequestCode.UPDATE_NAMESRV_CONFIG, nameserver)[0] == 0
    kept = Path("eruca-data/store/config/erucaOptions.properties")
    assert (tmp_path / kept).read_text() == "fileReservedTime=600\nbrokerPermission=4\n"
    assert print_settings(tmp_path, "up")["fileReservedTime"] == ("600", str(kept))
    # A flag overrides it, and the operator who changes it is told.
    with Up(tmp_path, *ports, "--broker-permission", "6") as up:
        found = show(up.facts["broker"])
        assert (found["fileReservedTime"], found["brokerPermission"]) == ("600", "6")
        # The two servers have an option of the same name.
        assert found["serverChannelMaxIdleTimeSeconds"] == "120"
        shown = ask(up.address, RequestCode.GET_NAMESRV_CONFIG)[1]
        assert {key: shown[key] for key in nameserver} == nameserver
        change(up.facts["broker"], brokerPermission="2")
        assert "brokerPermission is set by --broker-permission, which overrides this change" in up.end()[1]


def test_with_a_file_they_are_written_there(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# ours\nfileReservedTime=72 \n# the end\ndeleteWhen=04\n")
    ports = ["--listen-port", str(find_ports(-2, 1)), "-c", str(file)]
    with Up(tmp_path, *ports, command="broker") as up:
        change(up.facts["broker"], fileReservedTime="500", flushIntervalCommitLog="700")
    assert file.read_text() == "# ours\nfileReservedTime=500\n# the end\ndeleteWhen=04\nflushIntervalCommitLog=700\n"
    found = print_settings(tmp_path, "broker", *ports)
    assert (found["fileReservedTime"], found["deleteWhen"]) == (("500", str(file)), ("04", str(file)))
    with Up(tmp_path, *ports, command="broker") as up:
        assert show(up.facts["broker"])["flushIntervalCommitLog"] == "700"
        # What cannot be kept is not changed.
        file.rename(tmp_path / "aside.conf")
        file.mkdir()
        code, remark = ask(up.facts["broker"], RequestCode.UPDATE_BROKER_CONFIG, {"fileReservedTime": "1"})
        assert (code, "cannot be written" in remark) == (ResponseCode.SYSTEM_ERROR, True)
        assert show(up.facts["broker"])["fileReservedTime"] == "500"


def test_a_name_server_keeps_them_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    port = find_ports()
    file.write_text(f"listenPort={port}\n")
    wanted = {"orderMessageEnable": "true"}
    for arguments in (["-c", str(file)], ["--listen-port", str(port)]):
        with Up(tmp_path, *arguments, command="nameserver") as up:
            assert ask(up.address, RequestCode.UPDATE_NAMESRV_CONFIG, wanted)[0] == 0
        with Up(tmp_path, *arguments, command="nameserver") as up:
            assert ask(up.address, RequestCode.GET_NAMESRV_CONFIG)[1]["orderMessageEnable"] == "true"
    assert file.read_text() == f"listenPort={port}\norderMessageEnable=true\n"
    assert (tmp_path / "eruca-data/namesrv/namesrv.properties").read_text() == "orderMessageEnable=true\n"
