"""What every room stands on: limits, clocks, numbers in text, signals, periodic work, options."""
