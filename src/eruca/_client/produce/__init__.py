"""Producers: from the arguments of a send to its receipt."""
