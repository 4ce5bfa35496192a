"""The plain clients: the async ones, run by one loop in a thread of its own."""
