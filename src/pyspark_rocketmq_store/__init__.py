"""So that Spark finds `format("rocketmq-store")` by itself; see `pyspark_rocketmq`."""

try:
    from eruca.spark.storesource import StoreSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
