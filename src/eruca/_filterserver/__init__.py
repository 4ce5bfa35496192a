"""Class filters: pulls are filtered by code of the consumer, in a sandbox, in a process of its own."""
