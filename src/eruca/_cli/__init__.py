"""The `eruca` command."""
