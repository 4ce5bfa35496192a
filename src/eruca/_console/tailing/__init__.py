"""Live tail: the messages of a topic as they arrive."""
