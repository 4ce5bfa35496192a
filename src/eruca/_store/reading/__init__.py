"""Reading a store: the messages of a queue, and records by position, key or time."""
