"""Spark sessions that know both sources, with settings that make reading Arrow batches cheaper."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from eruca._spark.requirements import load_module
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT = "sc://"
_SOURCES = (("eruca._spark.datasource", "RocketMQSource"), ("eruca._spark.store.datasource", "StoreSource"))

_CONF: Mapping[str, str] = {
    # The date in a partition's name must not depend on the time zone of the machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# For a local session; a cluster has its own settings.
_LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
# The path of a Unix socket has at most 107 bytes, of which Spark's file names take 43.
_SOCKET_DIRECTORY_BYTES_MAX = 64
# Without these, Arrow checks the bounds of every value, and checks twice whether it is null.
_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# The default collector makes every write of a reference more expensive in return for short pauses.
_COLLECTOR = "-XX:+UseParallelGC"
_SPARK_ENVIRONMENT = ("SPARK_HOME", "SPARK_CONF_DIR")
_JAVA_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def make_session(name: str, master: str | None = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a SparkSession with both sources, in UTC, whose workers run the current Python.

    `master` is any Spark master, `sc://host` for Spark Connect, or None to leave it to `spark-submit`. `conf` overrides
    the settings made here. Raises ConfigError if Java cannot be started.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    # Workers would run the first python3 on the path. A cluster with another Python sets it in the environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    settings = dict(_CONF)
    if master is not None and master.startswith(_CONNECT):
        builder = builder.remote(master)
        settings = {key: value for key, value in settings.items() if key.startswith("spark.sql.")}
    elif master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            settings |= {**_LOCAL_CONF, **choose_sockets()}
            settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 2))
    if master is not None and not master.startswith(_CONNECT):
        # Spark puts these before the extraJavaOptions of the user.
        for role in ("driver", "executor"):
            settings[f"spark.{role}.defaultJavaOptions"] = choose_java_options(conf or {}, role)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY" not in str(error):
            raise
        raise ConfigError("Spark cannot start Java", hint="install Java 17 or set JAVA_HOME") from None
    register_sources(session)
    return session


def choose_java_options(conf: Mapping[str, str], role: str) -> str:
    """Return JVM options that make reading Arrow cheaper; a garbage collector chosen by the user is kept."""
    said = [conf.get(f"spark.{role}.extraJavaOptions", "")]
    said += [os.environ.get(name, "") for name in _JAVA_ENVIRONMENT]
    # A Spark installation may have chosen one too, and Java does not start with two.
    chosen = any("GC" in options for options in said) or any(os.environ.get(name) for name in _SPARK_ENVIRONMENT)
    return _ARROW_OPTIONS if chosen else f"{_ARROW_OPTIONS} {_COLLECTOR}"


def choose_sockets() -> dict[str, str]:
    """Return settings that pass rows from workers to Java over Unix sockets, if their paths are short enough."""
    directory = tempfile.gettempdir()
    if len(os.fsencode(directory)) > _SOCKET_DIRECTORY_BYTES_MAX:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": directory}


def register_sources(session: SparkSession) -> None:
    """Register `rocketmq` and `rocketmq-store`, for sessions that did not find them automatically."""
    for module, name in _SOURCES:
        session.dataSource.register(getattr(load_module(module, "a session with these sources"), name))
