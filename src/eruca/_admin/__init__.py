"""What operators do to a running cluster, for the command line and whatever else wants to: one way to do each thing."""
