"""The command line that does what a page does, for `copy as command`."""

from __future__ import annotations


def write_flags(**values: object) -> list[str]:
    """Return flags for the values that are not None: `queues=8` is `--queues 8`, `ordered=True` is `--ordered`."""
    words: list[str] = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, list | tuple):
            for item in value:
                words += [flag, str(item)]
        elif value is not None and value is not False:
            text = str(value)
            words += [f"{flag}={text}"] if text.startswith("-") or not text else [flag, text]
    return words
