"""Offline tools for a store directory: verify, dump, rebuild, summary, parts that were set aside.

A rebuild takes the lock and rebuilds consume queues and index. All other tools only read, from a store of ours or of
Java's, open or closed.
"""
