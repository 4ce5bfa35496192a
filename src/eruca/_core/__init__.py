"""Decisions without I/O: a machine receives events and returns the actions to take."""
