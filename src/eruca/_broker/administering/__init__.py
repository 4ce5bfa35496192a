"""Requests from operators and their tools."""
