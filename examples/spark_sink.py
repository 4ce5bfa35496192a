"""A table as messages: every row is sent to a topic, with tag, keys and sharding key from its columns.

Spark writes the rows, and a plain consumer of the same package reads them. Needs Java 17 and
`pip install "eruca[spark]"`.

    python examples/spark_sink.py
    python examples/spark_sink.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

from sparkstage import open_spark
from stage import Stage, open_stage, tell

from eruca.sync import Consumer, Producer

PRICES = [("melon", 320, "fruit"), ("pear", 45, "fruit"), ("basil", 150, "herb"), ("fig", 80, "fruit")]


def main(stage: Stage) -> None:
    """Write prices with Spark, and read them without it."""
    topic = stage.name("prices")
    with Producer(stage.nameserver, group=stage.name("shop")) as producer:
        producer.send(topic, b"the first message creates the topic", tags="other")
    with open_spark() as spark:
        frame = spark.createDataFrame(PRICES, "name string, cents int, kind string").selectExpr(
            "to_json(struct(name, cents)) AS body", "kind AS tags", "array(name) AS keys", "name AS shardingKey"
        )
        sink = frame.write.format("rocketmq").option("nameServer", stage.nameserver).option("topic", topic)
        sink.mode("append").save()
    tell(f"* Spark sent {len(PRICES)} prices.")

    found = []
    wanted = {topic: "fruit || herb"}
    with Consumer(stage.nameserver, group=stage.name("till"), subscribe=wanted, start="earliest") as consumer:
        for message in consumer:
            found.append(f"{message.keys[0]} ({message.tags}): {message.body.decode()}")
            message.ack()
            if len(found) == len(PRICES):
                break
    for line in sorted(found):
        tell(f"  {line}")
    tell("* All prices were read.")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        main(stage)
