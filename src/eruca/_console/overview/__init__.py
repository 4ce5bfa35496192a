"""The first page of a cluster."""
