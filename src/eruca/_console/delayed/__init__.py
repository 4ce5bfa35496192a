"""Delayed messages: those that wait for their time, and cancelling them."""
