"""So that Spark finds `format("rocketmq")` by itself: it looks for packages named `pyspark_*` with a DefaultSource.

One of them that cannot be imported would hide all others, so a missing extra only means that there is no source.
"""

try:
    from eruca._spark.datasource import RocketMQSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
