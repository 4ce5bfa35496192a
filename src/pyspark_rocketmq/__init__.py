"""Lets Spark find `format("rocketmq")`: it imports packages named `pyspark_*` and takes their DefaultSource."""

from eruca._spark.discovery import find_source

__all__ = ["DefaultSource"]

DefaultSource = find_source("rocketmq", "eruca._spark.datasource", "RocketMQSource")
