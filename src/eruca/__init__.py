"""Eruca: a RocketMQ-compatible message system in Python."""

__version__ = "0.1.0"
