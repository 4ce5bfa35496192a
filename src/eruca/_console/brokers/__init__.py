"""Pages of clusters and brokers."""
