"""Telling name servers what this broker has, and hearing of the filter servers beside it."""
