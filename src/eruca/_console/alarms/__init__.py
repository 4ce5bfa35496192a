"""Pages of alarms: what fires, rules, channels, deliveries."""
