"""So that Spark finds `format("rocketmq-store")` by itself; see `pyspark_rocketmq`."""

try:
    from eruca._spark.store.datasource import StoreSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
