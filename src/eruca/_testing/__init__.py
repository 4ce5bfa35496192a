"""Tools for tests; what users import is `eruca.testing`."""
