"""Pull consumers: they ask for their messages themselves."""
