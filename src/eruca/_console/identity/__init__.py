"""Who may do what: users, sessions, roles and rights, the check of every request, and the audit log."""
