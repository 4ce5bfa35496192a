"""Logging in and out, and a user's own password and sessions."""
