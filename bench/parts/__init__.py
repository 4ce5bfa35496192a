"""Parts of the benchmarks that are not benchmarks themselves."""
