"""The live view of `eruca top`: samples of a cluster, what keys do, and what is on the screen."""
