"""What a broker shows to monitoring systems: its figures, and whether it is ready."""
