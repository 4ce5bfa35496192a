"""Transactions in doubt: what the broker knows of them, resuming and discarding them."""
