"""Spark finds both sources automatically; one that lacks a package says so when it is used, and hides no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

import eruca.spark
import pyspark_rocketmq
import pyspark_rocketmq_store
from tests.patience import SPARK_S

# Spark does it so in a separate process, when the first source is asked for that it does not know.
_LOOK_UP = """
import io
from pyspark.sql.worker import lookup_data_sources
from pyspark.serializers import read_int, read_long, write_int
out = io.BytesIO()
lookup_data_sources._main(io.BytesIO(), out)
out.seek(0)
for _ in range(read_int(out)):
    print(out.read(read_int(out)).decode())
    out.read(read_int(out))
"""
# Uses both sources as Spark does, in a process where some packages cannot be imported.
_WITHOUT = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
import pyspark_rocketmq, pyspark_rocketmq_store
for module in (pyspark_rocketmq, pyspark_rocketmq_store):
    try:
        source = module.DefaultSource({"nameServer": "127.0.0.1:9876", "subscribe": "t"})
        print(source.name(), "works")
    except ImportError as error:
        print(module.DefaultSource.name(), "says", error)
try:
    import eruca.spark
except ImportError as error:
    print("eruca.spark says", error)
"""


def _run(program: str, *words: str) -> list[str]:
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SPARK_S, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_spark_finds_both() -> None:
    assert {"rocketmq", "rocketmq-store"} <= set(_run(_LOOK_UP))
    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"
    assert pyspark_rocketmq_store.DefaultSource.name() == "rocketmq-store"


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_missing_package_is_named_when_a_source_is_used(package: str) -> None:
    what = f'needs {package} (pip install "eruca[spark]", on every node)'
    assert _run(_WITHOUT, package) == [
        f'rocketmq says format("rocketmq") {what}',
        f'rocketmq-store says format("rocketmq-store") {what}',
        f"eruca.spark says eruca.spark {what}",
    ]


def test_a_source_that_cannot_be_loaded_says_why() -> None:
    found = _run(_WITHOUT, "eruca._spark.store.logfiles")
    assert found[0] == "rocketmq works"
    assert found[1].startswith('rocketmq-store says format("rocketmq-store") cannot be loaded: ')
    assert "eruca._spark.store.logfiles" in found[1]


def test_both_are_found_although_a_package_is_missing() -> None:
    hidden = "import sys; sys.modules['numpy'] = None\n"
    assert {"rocketmq", "rocketmq-store"} <= set(_run(hidden + _LOOK_UP))


def test_without_pyspark_the_module_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['pyspark'] = None\n"
    program = hidden + "try:\n    import eruca.spark\nexcept ImportError as error:\n    print(error)"
    assert _run(program) == ['eruca.spark needs pyspark (pip install "eruca[spark]", on every node)']


def test_everything_public_is_there() -> None:
    assert [name for name in eruca.spark.__all__ if not hasattr(eruca.spark, name)] == []
    assert sorted(eruca.spark.__all__) == eruca.spark.__all__
