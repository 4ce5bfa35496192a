"""`eruca pipeline`: the jobs as commands, and what they say when something is missing or wrong."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eruca import Outgoing
from eruca._cli import pipelineoptions
from eruca._cli.main import main
from eruca._cli.pipeline import pipeline
from eruca._wire.bodies import KVTable
from eruca._wire.codes import RequestCode
from eruca._wire.headers import EmptyHeader
from eruca.admin import Admin
from tests.interop.brokers import ErucaCluster
from tests.paths import REPOSITORY
from tests.patience import SPARK_S
from tests.spark.producing import create_topic, name_topic, run, send

JOBS = ("archive", "query", "stats", "replay", "dlq", "audit", "rebuild", "fsck", "checkpoint")
WITHOUT_SPARK = ("checkpoint",)


@pytest.fixture
def shared_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands use the session of the tests: one for each of them would take minutes."""

    class Shared:
        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

        def stop(self) -> None:
            """Others need it still."""

    load = pipelineoptions.load

    class Job:
        @staticmethod
        def make_session(*_: Any) -> Any:
            return Shared()

    monkeypatch.setattr(pipelineoptions, "load", lambda name: Job if name.endswith(".session") else load(name))


def invoke(*words: str, ok: bool = True) -> Result:
    result = CliRunner().invoke(main, ["pipeline", *words])
    assert not ok or result.exit_code == 0, result.output + repr(result.exception)
    return result


@pytest.mark.usefixtures("shared_session")
def test_a_day_with_an_archive(eruca_cluster: ErucaCluster, tmp_path: Path) -> None:
    topic, group, place = name_topic("cli"), name_topic("cli-group"), str(tmp_path / "archive")
    create_topic(eruca_cluster, topic, 1)
    send(eruca_cluster, topic, [Outgoing(b"one", tags="a", keys=["k"]), Outgoing(b"two")], queue=0)
    at = ("-n", eruca_cluster.name_server)
    shown = invoke("archive", "--archive", place, *at, "-t", topic, "--summary", str(tmp_path / "s.json")).stdout
    assert "archive" in shown and "rows" in shown
    assert json.loads((tmp_path / "s.json").read_text())["rows"] == 2
    send(eruca_cluster, topic, [b"three"], queue=0)
    statement = "select queueOffset, cast(body as string) body from messages order by queueOffset"
    rows = invoke("query", statement, "--archive", place, *at, "-t", topic, "-o", "json").stdout
    assert [json.loads(line)["body"] for line in rows.splitlines()] == ["one", "two", "three"]
    table = invoke("query", statement, "--archive", place).stdout
    assert "two" in table and "three" not in table
    text = invoke("query", statement, *at, "-t", topic, "-o", "csv").stdout
    assert list(csv.reader(io.StringIO(text)))[1:] == [["0", "one"], ["1", "two"], ["2", "three"]]
    summary = json.loads(invoke("stats", *at, "-t", topic, "--out", str(tmp_path / "r"), "-o", "json").stdout)
    assert (summary["rows"], summary["job"]) == (3, "stats")
    assert (tmp_path / "r" / "report.html").exists()
    target = name_topic("cli-target")
    create_topic(eruca_cluster, target, 1)
    summary = json.loads(
        invoke("replay", *at, "-t", topic, "-k", "k", "--to-topic", target, "--rate", "100", "-o", "json").stdout
    )
    assert (summary["rows"], summary["outputs"]) == (1, {"topic": target})
    send(eruca_cluster, f"%DLQ%{group}", 2, queues=1)
    summary = json.loads(invoke("dlq", *at, "-g", group, "--out", str(tmp_path / "letters"), "-o", "json").stdout)
    assert (summary["rows"], summary["facts"]["groups"][0]["group"]) == (2, group)
    assert any((tmp_path / "letters").glob("*.parquet"))
    assert "trace records" in invoke("audit", *at, "-t", topic, "--late", "1d").stdout


def test_brokers_delete_only_what_is_archived(spark: Any, tmp_path: Path, shared_session: None) -> None:
    settings = {"deleteOnlyArchived": "true", "fileReservedTime": "0", "mappedFileSizeCommitLog": str(512 * 1024)}
    with ErucaCluster(tmp_path / "home", settings) as cluster:
        topic = name_topic("guarded")
        send(cluster, topic, [b"x" * 1000 for _ in range(1200)])
        at = ("-n", cluster.name_server)
        assert run(_clean(cluster.name_server)) == 0
        place = str(tmp_path / "archive")
        invoke("archive", "--archive", place, *at, "-t", topic)
        assert run(_clean(cluster.name_server)) == 0  # archived, but the broker was not told
        summary = json.loads(invoke("archive", "--archive", place, *at, "-t", topic, "--mark", "-o", "json").stdout)
        mark = summary["facts"]["archived position"]["broker-a"]
        assert mark >= 2 * 512 * 1024
        # What is not synced yet is kept, so the first attempt may be too early.
        while (begin := run(_clean(cluster.name_server))) == 0:
            pass
        assert begin <= mark
        # All of it is there still, some of it only in the archive.
        statement = "select count(distinct queueId, queueOffset) n, count(*) m from messages"
        rows = invoke("query", statement, "--archive", place, *at, "-t", topic, "-o", "json").stdout
        assert json.loads(rows) == {"n": 1200, "m": 1200}


async def _clean(name_server: str) -> int:
    """Have a broker delete what it may, and give where its log begins."""
    async with Admin(name_server) as admin:
        (address,) = (await admin.connection.list_masters()).values()
        await admin.connection.ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG, EmptyHeader())
        _, body = await admin.connection.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, EmptyHeader())
        assert isinstance(body, KVTable)
        return int(body.table["commitLogMinOffset"])


def test_without_spark_every_job_says_what_to_install(tmp_path: Path) -> None:
    words = {
        "archive": ["--archive", str(tmp_path)],
        "query": ["select 1"],
        "replay": ["-t", "x"],
        "rebuild": [str(tmp_path)],
        "fsck": [str(tmp_path)],
    }
    script = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'pyspark': raise ModuleNotFoundError('No module', name='pyspark')\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from click.testing import CliRunner\n"
        "from eruca._cli.main import main\n"
        "import json\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    result = CliRunner().invoke(main, ['pipeline', *words])\n"
        "    print(result.exit_code, result.output.strip())\n"
    )
    calls = [[job, *words.get(job, [])] for job in JOBS if job not in WITHOUT_SPARK]
    calls.append(["checkpoint", "show", str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(calls)], capture_output=True, text=True, timeout=SPARK_S, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(calls), done.stdout
    assert "is not the checkpoint of a stream" in lines.pop()
    for line in lines:
        assert line == '1 eruca: this command needs pyspark (pip install "eruca[spark]", on every node)'


def test_without_java_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eruca", "pipeline", "stats", "--out", str(tmp_path / "r"), "-n", "127.0.0.1:1"]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SPARK_S, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "eruca: Spark cannot start Java (install Java 17 or set JAVA_HOME)"
    assert "Traceback" not in done.stderr


def test_every_job_teaches() -> None:
    assert set(pipeline.commands) == set(JOBS)
    for job in JOBS:
        text = invoke(job, "--help").stdout
        assert "Examples:" in text and f"eruca pipeline {job}" in text
    assert "Examples:" in invoke("--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stats", "--since", "yesterday"], "is not a time"),
        (["audit", "--late", "soon"], "expected a time span"),
        (["stats", "--store", "a=/x", "--store", "a=/y"], "two stores have the same broker"),
        (["query", "select 1", "-n", "nowhere"], "nowhere"),
        (["archive"], "Missing option '--archive'"),
        (["query", "select 1", "--archive", "/nowhere/at/all"], "is not an archive"),
        (["stats", "--conf", "spark"], "is not KEY=VALUE"),
    ],
)
def test_a_wrong_command_line_is_said_before_spark_starts(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("eruca._spark.session.make_session", refuse)
    result = invoke(*words, ok=False)
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert "Traceback" not in result.output
