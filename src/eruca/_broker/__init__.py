"""The broker: stores messages, serves them to consumers, and guarantees what it acknowledged."""
