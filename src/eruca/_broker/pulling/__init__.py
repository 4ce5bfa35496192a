"""Pulls, held pulls, filters, and searches for single messages."""
