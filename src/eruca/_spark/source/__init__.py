"""Topics as a Spark source.

`options` reads the options, `bounds` finds where a query starts and ends, `partitions` divides it into tasks. `batch`
and `stream` are the two readers; `queuewatch`, `microbatch` and `readlimits` plan micro-batches, and `groupcommits`
commits their offsets to a group. `pulling` and `answers` run in the tasks. `dataloss` applies failOnDataLoss.
"""
