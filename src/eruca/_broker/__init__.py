"""The broker: takes messages, keeps them, gives them out, and answers for them."""
