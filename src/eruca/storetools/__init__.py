"""Offline tools for a store directory: verify, dump, rebuild, summary."""
