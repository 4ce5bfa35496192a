"""The benchmarks: every module here except `runner` is one, named after it. `parts` holds what they share."""
