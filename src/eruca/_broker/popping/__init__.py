"""Messages that are popped: delivered to any member of a group, and again unless acknowledged in time."""
