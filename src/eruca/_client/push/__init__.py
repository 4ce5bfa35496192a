"""Push consumers: the queues are shared in a group; their messages are pulled, handled and committed."""
