"""State shared by the clients of one process: connections, routes, heartbeats, and the requests they make."""
