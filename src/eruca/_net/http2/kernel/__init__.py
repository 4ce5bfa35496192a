"""Loops of HTTP/2 that are compiled if there is a compiler: cutting frames, decoding header blocks."""

from eruca._wire.kernel import load_kernels

load_kernels(__name__, __path__)
