"""The benchmarks: every module here but `runner` is one, by its name. `parts` holds what they share."""
