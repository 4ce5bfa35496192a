"""Watching clusters: samples of lag and rates, their history, alarms and their delivery."""
