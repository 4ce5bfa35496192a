"""What the clients of one process share: connections, routes, heartbeats, and the calls they make."""
