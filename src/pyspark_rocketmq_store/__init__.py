"""Lets Spark find `format("rocketmq-store")`: it imports packages named `pyspark_*` and takes their DefaultSource."""

from eruca._spark.discovery import find_source

__all__ = ["DefaultSource"]

DefaultSource = find_source("rocketmq-store", "eruca._spark.store.datasource", "StoreSource")
