"""Checkpoints of streams: read and changed without Spark."""
