"""Subscription expressions, parsed once and evaluated often. No I/O."""
