"""The plain clients: the async ones, run by one event loop in a separate thread."""
