"""What every room builds on: limits, clocks, numbers in text, signals, periodic work, options."""
