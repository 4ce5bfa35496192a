"""Operations on a running cluster, for the command line and for programs: one way to do each thing."""
