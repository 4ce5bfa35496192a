"""Class filters: pulls are filtered by the consumer's own code, in a sandbox in a separate process."""
