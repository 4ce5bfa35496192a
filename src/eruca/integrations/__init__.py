"""Eruca as the broker of other frameworks; each module needs the extra of its name (`pip install "eruca[celery]"`)."""
