"""Producers and consumers: who is connected, which groups there are, and how far they are."""
