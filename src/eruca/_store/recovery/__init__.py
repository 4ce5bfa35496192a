"""What a start finds, decides and mends."""
