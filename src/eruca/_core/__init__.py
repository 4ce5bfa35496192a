"""Decisions without I/O: a machine is told what happened and says what to do."""
