"""A small form of `make torture ONLY=limits`, and options of limits that reach the servers they are for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca import ClientOptions, Producer
from eruca._broker.options import BrokerOptions
from eruca._cli.optionlist import Role, list_options
from eruca._filterserver.options import FilterServerOptions
from eruca._ground.config import info_of
from eruca._nameserver.options import NameServerOptions
from eruca._net.limitoptions import LimitOptions
from eruca._observe.metrics import SERVER
from eruca._wire.codes import ResponseCode
from eruca.errors import SendFailed
from tests.integration.broker.conftest import excuse_new_files
from tests.integration.cli.upprocess import run_eruca
from tests.security.attackers import open_attacker, run_victims
from tests.torture.hostile import Aims
from tests.torture.limitparts import PARTS
from tests.torture.limits import GROWTH_MAX, run_limits

SIZE = 0.02
# A message for a topic that does not exist.
SENT = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
# In a short run percentiles are meaningless, and one stall of a disk is a silence.
AIMS = Aims(silence_ms=3000.0, slower=1000.0, memory=GROWTH_MAX)


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the stores of this test make files."""
    excuse_new_files(forbid_blocking_calls)


def test_every_part_in_a_small_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(run_limits(tmp_path, list(PARTS), AIMS, size=SIZE)) == []
    said = capsys.readouterr().out
    for name in PARTS:
        assert f"  {name} " in said


def test_every_server_has_the_limits_as_options() -> None:
    shared = {info.java for info in info_of(LimitOptions).values()}
    assert len(shared) >= 6
    for options in (BrokerOptions, NameServerOptions, FilterServerOptions):
        assert shared <= {info.java for info in info_of(options).values()}
    for role in (Role.BROKER, Role.NAMESERVER, Role.FILTERSERVER):
        assert shared <= {facts.key for facts in list_options() if facts.role is role}


def test_one_option_sets_the_limit_of_both_servers_of_up(tmp_path: Path) -> None:
    done = run_eruca("up", "-p", "-o", "json", "--server-max-connections", "77", cwd=tmp_path)
    rows = {row["key"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert rows["serverMaxConnections"]["value"] == "77"
    refused = run_eruca("up", "--server-max-connections", "0", cwd=tmp_path)
    assert refused.returncode != 0 and "serverMaxConnections=0: the minimum is 1" in refused.stderr


async def test_limits_change_while_servers_run_and_their_refusals_say_so(tmp_path: Path) -> None:
    async with run_victims(tmp_path) as victims:
        broker, names = victims.broker.standing.address, victims.nameserver.address
        async with open_attacker(broker) as operator, open_attacker(names) as other:
            assert (await operator.ask(25, {}, b"maxTopics=1\nserverMaxConnections=1")).code == ResponseCode.SUCCESS
            assert (await other.ask(318, {}, b"maxKVConfigBytes=100")).code == ResponseCode.SUCCESS
            large = await other.ask(100, {"namespace": "n", "key": "k", "value": "v" * 100})
            assert "(maxKVConfigBytes=100)" in large.remark
            heard = await operator.ask(310, SENT, b"x")
            assert "(maxTopics=1)" in heard.remark and "or raise maxTopics" in heard.remark
            options = ClientOptions(nameservers=names)
            async with Producer(group="p", options=options, timeout=1) as producer:
                with pytest.raises(SendFailed, match=r"serverMaxConnections|was closed|at once"):
                    await producer.send("BenchmarkTest", b"x")
            assert (await operator.ask(25, {}, b"serverMaxConnections=100\nmaxTopics=1000")).code == 0
            heard = await operator.ask(310, SENT, b"x")
            assert heard.code == ResponseCode.SUCCESS
    shown = SERVER.snapshot()
    for key in ("maxTopics", "maxKVConfigBytes", "serverMaxConnections"):
        assert shown[f'eruca_server_refused_total{{option="{key}"}}'] >= 1
