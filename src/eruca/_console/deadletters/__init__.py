"""Dead letters: look at them, send them again, edited or not, export them."""
