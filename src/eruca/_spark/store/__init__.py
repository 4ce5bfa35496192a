"""Store directories in Spark: their records as a source, and the files derived from them."""
