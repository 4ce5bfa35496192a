"""Masters and slaves: copying the log between brokers, and deciding what may be acknowledged."""
