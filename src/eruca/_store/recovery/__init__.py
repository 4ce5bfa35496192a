"""Recovery at start: what is found, decided and repaired."""
