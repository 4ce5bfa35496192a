"""Spark: topics and store directories as data sources, a sink for topics, and the jobs of `eruca pipeline`.

`source` reads topics, `sink` writes them, `store` reads the files of brokers, `decoding` turns bodies into columns, and
`pipelines` has the jobs. What they share is at the top; `eruca.spark` exports what users need.
"""
