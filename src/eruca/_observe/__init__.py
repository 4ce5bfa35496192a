"""Logs, metrics and traces: what any room may call."""
