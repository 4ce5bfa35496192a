"""The page of the audit log."""
