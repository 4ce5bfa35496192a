"""`eruca pipeline archive`: messages kept as Parquet or Delta files, by topic and date.

`job` runs it, `plan` finds what is new, `frames` arranges the columns, `ledger` records what the archive contains,
`delta` writes Delta tables, and `compaction` merges small files.
"""
