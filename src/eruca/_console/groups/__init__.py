"""Pages of consumer groups: who is behind, why, and moving them."""
