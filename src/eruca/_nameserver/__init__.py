"""The name server: which brokers are alive and where the queues of a topic are."""
