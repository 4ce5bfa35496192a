"""Topics as a Spark source.

`options` reads the options, `positions` those about start and end, `bounds` finds these, and `partitions` divides what
is between them into tasks. `batch` and `stream` are the two readers; `queuewatch`, `microbatch` and `readlimits` plan
micro-batches. `groupcommits` commits their offsets to a group, and `lag` measures how far a stream is behind. `pulling`
and `answers` run in the tasks. `dataloss` applies failOnDataLoss.
"""
