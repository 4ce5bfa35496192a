"""From a send request to a stored message and its response."""
