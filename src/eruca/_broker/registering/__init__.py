"""Registering this broker with name servers, and filter servers with this broker."""
