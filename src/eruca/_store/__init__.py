"""The disk: segments, commit log, consume queue, index, dispatch, recovery, flush, retention, tables."""
