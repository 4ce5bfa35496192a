"""Offline tools for a store directory: verify, dump, rebuild, summary, what was set aside.

A rebuild takes the lock, and makes consume queues and index again. All others only look, at a store of ours or of
Java's, open or closed.
"""
