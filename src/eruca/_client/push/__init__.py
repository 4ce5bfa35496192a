"""Consumers that are given their messages: queues shared in a group, pulled, handled, committed."""
