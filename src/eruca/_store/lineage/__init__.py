"""The origin of the log: epochs, copies of a master's log, and what is cut off and set aside."""
