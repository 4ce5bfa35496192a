"""The users of the console, their roles and rights, and the fields that are masked from some of them."""
