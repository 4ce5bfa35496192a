"""The clients: one session a process and cluster, producers and consumers on top of it."""
