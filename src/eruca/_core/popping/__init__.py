"""Messages in flight: delivered to a member of a group, and neither acknowledged nor visible again."""
