"""Traces: what happened to a message, as a timeline."""
