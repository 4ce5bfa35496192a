"""The plain admin: the same parts and methods without `async`, written by `make generate`."""
