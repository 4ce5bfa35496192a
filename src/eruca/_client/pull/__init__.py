"""Consumers that ask for their messages themselves."""
