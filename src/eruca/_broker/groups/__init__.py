"""Producers and consumers: connections, groups, and the progress of groups."""
