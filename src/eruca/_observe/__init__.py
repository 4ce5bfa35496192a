"""Logs, metrics and traces, for use by any package."""
