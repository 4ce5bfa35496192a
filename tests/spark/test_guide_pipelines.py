"""The guide to the pipelines: every command on the page works as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eruca import Outgoing
from eruca._cli.main import main
from tests.interop.brokers import ErucaCluster
from tests.paths import REPOSITORY
from tests.spark.producing import create_topic, send
from tests.spark.stores import make_rich_store
from tests.spark.test_pipeline_cli import shared_session

__all__ = ["shared_session"]

PAGE = REPOSITORY / "docs" / "guide" / "pipelines.md"
NAMESERVER = "127.0.0.1:9876"


def list_fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("shared_session")
@pytest.mark.whole
def test_every_command_of_the_page_works(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_rich_store(tmp_path / "store")
    commands = [line for fence in list_fences("sh") for line in fence.splitlines()]
    assert len(commands) > 12
    with ErucaCluster(tmp_path / "home", {"traceTopicEnable": "true"}) as cluster:
        create_topic(cluster, "orders-again", 2)
        send(cluster, "orders", [Outgoing(b"%d" % n, keys=[f"o-{n}"], tags="fruit") for n in range(5)])
        send(cluster, "%DLQ%billing", 2, queues=1)
        for command in commands:
            words = shlex.split(command.replace(NAMESERVER, cluster.name_server))
            result = CliRunner().invoke(main, words[1:])
            assert result.exit_code == 0, f"{command}\n{result.output}{result.exception!r}"
        (example,) = list_fences("python")
        monkeypatch.setattr("eruca.spark.make_session", lambda *_: spark)
        exec(compile(example.replace(NAMESERVER, cluster.name_server), PAGE, "exec"), {})
