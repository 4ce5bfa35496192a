"""Pages about messages: search, show, send, import."""
