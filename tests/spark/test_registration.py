"""Both sources are found by themselves: Spark looks for packages named `pyspark_*`."""

from __future__ import annotations

import subprocess
import sys

import pyspark_rocketmq
import pyspark_rocketmq_store

# Spark does it so in a process of its own, when the first source is asked for that it does not know.
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
_WITHOUT = """
import sys
sys.modules["pyarrow"] = sys.modules["numpy"] = None
import pyspark_rocketmq, pyspark_rocketmq_store
print("fine")
"""


def _run(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_spark_finds_both() -> None:
    assert {"rocketmq", "rocketmq-store"} <= set(_run(_LOOK_UP))
    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"
    assert pyspark_rocketmq_store.DefaultSource.name() == "rocketmq-store"


def test_without_the_extra_they_hide_nobody() -> None:
    assert _run(_WITHOUT) == ["fine"]
