"""From a request to a stored message and its answer."""
