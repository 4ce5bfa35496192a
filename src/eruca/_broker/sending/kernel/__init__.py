"""Loops of sending that are compiled where there is a compiler."""

from eruca._wire.kernel import load_kernels

load_kernels(__name__, __path__)
