"""`format("rocketmq-store")` as a user of Spark meets it; `tests/unit/spark/store/test_datasource.py` has the cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from eruca._spark.columns import STORE_COLUMNS, make_schema, tighten
from eruca._store.messagestore import open_store
from tests.paths import unpack_golden
from tests.spark.stores import lose_a_page, make_options, make_rich_store
from tests.store_samples import fill_store, make_message


def test_a_store_is_a_table(spark: Any, tmp_path: Path) -> None:
    stored = make_rich_store(tmp_path / "store")
    records = spark.read.format("rocketmq-store").option("minPartitions", 4).load(str(tmp_path / "store"))
    assert records.schema == make_schema(tighten(STORE_COLUMNS))
    assert records.rdd.getNumPartitions() >= 4
    rows = records.orderBy("physicalOffset").collect()
    assert [row["physicalOffset"] for row in rows] == [message.position for message in stored]
    assert [bytes(row["body"]) for row in rows] == [message.body for message in stored]
    assert rows[0]["properties"] == stored[0].read_properties()
    assert rows[0]["keys"] == ["key-0", "common"]
    counted = {row["topic"]: row["count"] for row in records.groupBy("topic").count().collect()}
    assert counted["Orders"] == 160
    # One frame used in several ways.
    halves = records.where("queueId = 0").union(records.where("queueId <> 0"))
    assert halves.count() == len(stored)


def test_javas_store_in_sql(spark: Any, tmp_path: Path) -> None:
    root = unpack_golden("clean", tmp_path)
    spark.sql(f"CREATE TEMPORARY VIEW golden_log USING `rocketmq-store` OPTIONS (path '{root}', broker 'golden')")
    try:
        row = spark.sql(
            "SELECT count(*) AS n, count_if(crcOk) AS good, max(broker) AS broker, sum(size) AS bytes FROM golden_log"
        ).first()
        assert (row["n"], row["good"], row["broker"]) == (2127, 2127, "golden")
        tags = spark.sql("SELECT count(DISTINCT properties['TAGS']) AS n FROM golden_log WHERE tags IS NOT NULL")
        assert tags.first()["n"] > 1
    finally:
        spark.catalog.dropTempView("golden_log")


def test_fewer_columns_and_several_stores(spark: Any, tmp_path: Path) -> None:
    for name, count in (("a", 5), ("b", 7)):
        fill_store(tmp_path / name, count)
    reader = spark.read.format("rocketmq-store").schema("broker string, tagsCode bigint, storeTimestamp timestamp")
    records = reader.load(f"{tmp_path}/a,{tmp_path}/b")
    assert records.columns == ["broker", "tagsCode", "storeTimestamp"]
    counted = records.groupBy("broker").agg(F.count("*"), F.countDistinct("tagsCode")).collect()
    assert {tuple(row) for row in counted} == {(f"{tmp_path}/a", 5, 3), (f"{tmp_path}/b", 7, 3)}
    assert spark.read.format("rocketmq-store").load([str(tmp_path / "a"), str(tmp_path / "b")]).count() == 12
    without = spark.read.format("rocketmq-store").option("includeProperties", "false").load(str(tmp_path / "a"))
    assert "properties" not in without.columns


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscirbe": "Orders"}, "did you mean subscribe"),
        ({"onDamage": "skipp"}, "did you mean skip"),
        ({"bytesPerPartition": "many"}, "64m"),
        ({"startingTimestamp": "yesterday"}, "-10m"),
        ({"path": "/nowhere/at/all"}, "not a directory"),
    ],
)
def test_wrong_options_fail_when_the_query_is_planned(
    spark: Any, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    fill_store(tmp_path / "store", 5)
    with pytest.raises(PySparkException, match=says):
        spark.read.format("rocketmq-store").options(**{"path": str(tmp_path / "store"), **options}).load().count()


def test_a_wrong_column_names_the_right_one(spark: Any, tmp_path: Path) -> None:
    fill_store(tmp_path / "store", 5)
    reader = spark.read.format("rocketmq-store").schema("topic string, queueOfset bigint")
    with pytest.raises(PySparkException, match="did you mean queueOffset"):
        reader.load(str(tmp_path / "store")).count()


def test_damage_fails_the_query_and_says_where(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = make_rich_store(root)
    lose_a_page(root, stored)
    reader = spark.read.format("rocketmq-store").schema("topic string, physicalOffset bigint")
    with pytest.raises(PySparkException, match=f"position {stored[60].position}"):
        reader.load(str(root)).count()
    assert 340 < reader.option("onDamage", "skip").load(str(root)).count() < 360
    shown = reader.option("onDamage", "report").load(str(root)).where("topic IS NULL").collect()
    assert [row["physicalOffset"] for row in shown] == [stored[60].position]
    # Such a row has next to nothing, so then every column may be null.
    whole = spark.read.format("rocketmq-store").option("onDamage", "report").load(str(root))
    assert whole.schema == make_schema(STORE_COLUMNS)
    assert whole.where("topic IS NULL").count() == 1


def test_the_store_of_a_broker_at_work(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root, make_options())
    for number in range(50):
        store.append(make_message(number))
    reader = spark.read.format("rocketmq-store").schema("queueOffset bigint")
    assert reader.load(str(root)).count() == 50
    store.append(make_message(50))
    assert reader.load(str(root)).count() == 51
    store.close()
