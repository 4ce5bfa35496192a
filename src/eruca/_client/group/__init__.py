"""What push and pull consumers share: queues, offsets, pulling, subscriptions."""
