"""Spark: topics and store directories as data sources and sinks, and the jobs of operating a message store."""
