"""Replication as decisions without I/O: which master wrote what, both sides of a link, when there are enough copies."""
