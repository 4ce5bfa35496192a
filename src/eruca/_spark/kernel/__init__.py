"""Loops of the Spark rooms that are compiled if there is a compiler: records to columns, rows to batches."""

from eruca._wire.kernel import load_kernels

load_kernels(__name__, __path__)
