"""The console: a web page over the admin API, for one or more clusters."""
