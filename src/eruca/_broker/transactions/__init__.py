"""Half messages, and how they are committed, rolled back and checked."""
