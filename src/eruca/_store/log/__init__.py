"""The commit log: fixed-size files in a chain, consecutive records, and damaged ranges."""
