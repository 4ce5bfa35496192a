"""Store directories in Spark: their records as a source, and the files that are derived from them.

`datasource` is the source and `logfiles` reads commit logs for it. `digests` computes what consume queues and index
keep of a record. `entryrows` and `checks` belong to the job `fsck`, `rebuildtasks` to the job `rebuild`.
"""
