"""The options a session of ours starts Java with."""

from __future__ import annotations

import tempfile

import pytest

from eruca._spark.session import choose_java_options, choose_sockets

_NAMES = ("SPARK_HOME", "SPARK_CONF_DIR", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)


def test_a_collector_is_chosen_for_who_chose_none() -> None:
    assert "-XX:+UseParallelGC" in choose_java_options({}, "driver")
    # Java does not start with two of them.
    given = {"spark.driver.extraJavaOptions": "-Xss4m -XX:+UseZGC"}
    assert "GC" not in choose_java_options(given, "driver")
    assert "-XX:+UseParallelGC" in choose_java_options(given, "executor")
    assert "arrow" in choose_java_options(given, "driver")


@pytest.mark.parametrize(
    ("name", "value"), [("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC"), ("SPARK_CONF_DIR", "/etc/spark"), ("SPARK_HOME", "/opt")]
)
def test_the_environment_may_have_chosen_one(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert "GC" not in choose_java_options({}, "driver")


def test_sockets_only_where_their_paths_are_short_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/short")
    assert choose_sockets() == {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": "/short",
    }
    # Python would say "AF_UNIX path too long", and no job would run.
    monkeypatch.setattr(tempfile, "tempdir", "/" + "long" * 20)
    assert choose_sockets() == {}
