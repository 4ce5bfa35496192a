"""Files that browsers load."""

from __future__ import annotations

import hashlib

from eruca._console.pages.static import load_static

# Of htmx.org 2.0.11, dist/htmx.min.js, as npm has it.
_HTMX_SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"


def test_the_vendored_library_is_the_published_one() -> None:
    assert hashlib.sha256(load_static()["htmx.min.js"].data).hexdigest() == _HTMX_SHA256
