"""The commit log: fixed-size files in a chain, records one behind the other, and what is damaged in it."""
