"""The clients: one session per process and cluster, with producers and consumers on top of it."""
