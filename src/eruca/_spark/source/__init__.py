"""Topics as a Spark source: options, planning, reading, streaming."""
