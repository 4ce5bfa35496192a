"""Pieces of the benchmarks that are none by themselves."""
