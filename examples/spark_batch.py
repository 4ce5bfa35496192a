"""A topic as a table: read with Spark in three lines, no connector jar.

Some sensor readings are sent, and one message that is not a reading. Spark reads the topic and finds the hottest
place; messages that cannot be decoded are set aside with the reason. Needs Java 17 and `pip install "eruca[spark]"`.

    python examples/spark_batch.py
    python examples/spark_batch.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import json

from sparkstage import open_spark
from stage import Stage, open_stage, tell

from eruca.sync import Producer

READINGS = [("roof", 31.5), ("cellar", 12.0), ("roof", 33.0), ("garden", 24.5), ("cellar", 11.5)]


def main(stage: Stage) -> None:
    """Send some readings and let Spark read them."""
    topic = stage.name("readings")
    with Producer(stage.nameserver, group=stage.name("sensors")) as producer:
        for place, degrees in READINGS:
            producer.send(topic, json.dumps({"place": place, "degrees": degrees}).encode(), tags=place)
        producer.send(topic, b"the battery is low", tags="roof")
    tell(f"* {len(READINGS) + 1} messages were sent.")

    with open_spark() as spark:
        from pyspark.sql import functions

        from eruca.spark import decode_json, split_bad

        # These are the three lines.
        source = spark.read.format("rocketmq").option("nameServer", stage.nameserver).option("subscribe", topic)
        messages = source.load()
        tell(f"* By tag: {sorted((row.tags, row['count']) for row in messages.groupBy('tags').count().collect())}")

        good, bad = split_bad(decode_json(messages, "place string not null, degrees double"))
        hottest = good.groupBy("value.place").agg(functions.max("value.degrees").alias("most"))
        row = hottest.orderBy("most", ascending=False).first()
        tell(f"* The hottest place is the {row.place}, with {row.most} degrees.")
        for row in bad.collect():
            tell(f"* Set aside: {bytes(row.body).decode()!r}, as {row.error}.")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        main(stage)
