"""Who is there and what they may do."""
