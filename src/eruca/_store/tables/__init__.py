"""Small files beside the log: tables in JSON, and the timer log."""
