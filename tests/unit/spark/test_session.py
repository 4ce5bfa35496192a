"""The options a session of ours starts Java with."""

from __future__ import annotations

import pytest

from eruca.spark.pipelines.job import choose_java_options

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
