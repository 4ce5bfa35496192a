"""Programs for those who work on Eruca; nothing here is installed."""
