"""`eruca pipeline checkpoint` without a broker; `tests/spark/test_checkpoint.py` runs the streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eruca._cli.main import main
from tests.unit.spark.checkpoints.store import CLICKS, Q0, Q1, Written, offsets


@pytest.fixture
def written(tmp_path: Path) -> Written:
    found = Written(tmp_path / "my cp")
    found.add(16, offsets({Q0: 1, Q1: 1, CLICKS: 1}))
    found.add(17, offsets({Q0: 4, Q1: 2, CLICKS: 3}))
    return found


def invoke(*words: object, ok: bool = True) -> Result:
    result = CliRunner().invoke(main, ["pipeline", "checkpoint", *map(str, words)])
    assert (result.exit_code == 0) is ok, result.output + repr(result.exception)
    return result


def test_where_a_stream_is(written: Written) -> None:
    shown = invoke("show", written.home).stdout
    assert "query 5f5e2a53, last complete batch 17" in shown and "planned" not in shown and "source" not in shown
    written.plan(18, offsets({Q0: 9, Q1: 2, CLICKS: 3}))
    shown = invoke("show", written.home).stdout
    assert "batch 18 is planned" in shown and "committed" in shown
    found = json.loads(invoke("show", written.home, "-o", "json").stdout)
    assert (found["committed"], found["planned"], found["queryId"]) == (17, 18, "5f5e2a53")
    assert [each["batch"] for each in found["batches"]] == [16, 17, 18]
    assert found["queues"][1] == {
        "source": 0, "topic": "orders", "broker": "broker-a", "queueId": 0, "committed": 4, "planned": 9
    }  # fmt: skip
    assert "not on a local disk" in invoke("show", "hdfs://name/cp", ok=False).output


def test_an_edit_and_the_command_that_undoes_it(written: Written) -> None:
    before = written.read(17)
    change = ("edit", written.home, "--set", "orders/broker-a/0=2", "--set", "clicks/broker-a/0=3", "-o", "json")
    dry = invoke(*change, "--dry-run")
    assert json.loads(dry.stdout) == {
        "path": str(written.home), "batch": 17, "gaveUpBatch": False, "dryRun": True, "undo": "",
        "changes": [
            {"source": 0, "topic": "orders", "broker": "broker-a", "queueId": 0, "before": 4, "after": 2}
        ],
    }  # fmt: skip
    assert "the offsets were not compared with the queues; -n asks the brokers" in dry.stderr
    assert written.read(17) == before
    # It was written a moment ago, and nobody confirms.
    assert "is the query running?" in invoke(*change, "--yes", ok=False).output
    assert "--yes" in invoke(*change, "--idle", "0s", ok=False).output
    assert written.read(17) == before
    done = invoke(*change, "--idle", "0s", "--yes")
    undo = json.loads(done.stdout)["undo"]
    assert undo in done.stderr and f"'{written.home}' --undo 17-" in undo
    assert written.read(17)[2] == offsets({Q0: 2, Q1: 2, CLICKS: 3})
    again = invoke(*change, "--idle", "0s")
    assert "nothing to do" in again.stderr
    invoke("edit", written.home, "--undo", undo.split()[-1], "--idle", "0s", "--yes")
    assert written.read(17) == before


def test_state_and_planned_batches_are_warned_of(tmp_path: Path) -> None:
    written = Written(tmp_path / "cp", is_stateful=True)
    written.add(0, offsets({Q0: 4}))
    assert "the query has state" in invoke("edit", written.home, "--set", "orders/broker-a/0=2", "--dry-run").stderr
    written.plan(1, offsets({Q0: 9}))
    refused = invoke("edit", written.home, "--set", "orders/broker-a/0=2", "--dry-run", ok=False)
    assert "--give-up-batch" in refused.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --set or --to"),
        (("--to", "latest"), "--to and -t belong together"),
        (("-t", "orders", "--set", "orders/broker-a/0=1"), "--to and -t belong together"),
        (("--undo", "17-x", "--set", "orders/broker-a/0=1"), "--undo excludes --set and --to"),
        (("--undo", "17-x", "--idle", "0s", "--yes"), "has no edit 17-x"),
        (("--set", "orders/0=1"), "expected TOPIC/BROKER/QUEUE=OFFSET"),
        (("--set", "orders/broker-a/0=-1"), "expected TOPIC/BROKER/QUEUE=OFFSET"),
        (("--set", "order/broker-a/0=1"), "did you mean orders/broker-a/0?"),
        (("--to", "lastest", "-t", "orders"), "did you mean latest?"),
        (("--to", "latest", "-t", "order"), "did you mean orders?"),
        (("--set", "orders/broker-a/0=1", "--source", "4"), "there is no source 4"),
        (("--set", "orders/broker-a/0=1", "--idle", "soon"), "expected a time span"),
    ],
)
def test_mistakes_are_named(written: Written, words: tuple[str, ...], said: str) -> None:
    result = invoke("edit", written.home, *words, ok=False)
    assert said in result.output
