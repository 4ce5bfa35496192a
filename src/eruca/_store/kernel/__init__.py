"""Loops of the store that are compiled if there is a compiler: index entries, dispatch, entries of queues."""

from eruca._wire.kernel import load_kernels

load_kernels(__name__, __path__)
