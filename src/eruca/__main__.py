"""`python -m eruca` is the `eruca` command."""

from __future__ import annotations

from eruca._cli.main import main

if __name__ == "__main__":
    main(prog_name="eruca")
