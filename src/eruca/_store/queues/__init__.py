"""What is derived from the log: consume queues and the index, and the dispatch that writes them."""
