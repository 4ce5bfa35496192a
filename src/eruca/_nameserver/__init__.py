"""The name server: which brokers are alive, and which of them have the queues of a topic."""
