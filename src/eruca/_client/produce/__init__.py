"""Producers: from what a user says to a receipt."""
