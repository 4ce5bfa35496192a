"""What is wrong with a cluster, how bad it is, and what to do: pure checks over a picture of it."""
