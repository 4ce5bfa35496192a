"""Masters and slaves: the log's way from one broker to others, and who may acknowledge what."""
