"""What tools return: JSON of bounded size, without secrets, with notes on what was cut."""

from __future__ import annotations

import json
from typing import Any

from eruca._admin.plain import hide_secrets, to_plain
from eruca.errors import ErucaError

#: The longest answer of a tool. An assistant reads all of it, and pays for it.
BYTES_MAX = 24_000
#: Rows of each list, before the length of the answer is looked at.
ROWS_MAX = 200
# Characters of one text, such as an error or a stack.
_TEXT_MAX = 2_000
# Where even few rows are too long, texts are cut to this.
_TEXT_MIN = 100


def write_answer(value: Any, notes: list[str] | None = None) -> str:
    """Return a result as JSON of at most `BYTES_MAX` bytes; lists and texts that are too long are cut, with a note."""
    plain = hide_secrets(to_plain(value))
    rows, chars = ROWS_MAX, _TEXT_MAX
    while True:
        cuts: dict[str, None] = {}
        cut = _cut(plain, "", rows, chars, cuts)
        whole = {**cut, **_name_notes([*(notes or []), *cuts])} if isinstance(cut, dict) else cut
        text = json.dumps(whole, ensure_ascii=False)
        if len(text.encode()) <= BYTES_MAX:
            return text
        if rows > 1:
            rows //= 2
        elif chars > _TEXT_MIN:
            chars //= 2
        else:
            note = f"the answer is larger than {BYTES_MAX} bytes: ask for less"
            return json.dumps({"notes": [*(notes or []), note]}, ensure_ascii=False)


def write_error(error: ErucaError) -> str:
    """Return an error of ours with its hint, in bounded length. It may quote what a server answered."""
    text: str = hide_secrets(str(error))
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _name_notes(notes: list[str]) -> dict[str, list[str]]:
    return {"notes": notes} if notes else {}


def _cut(value: Any, where: str, rows: int, chars: int, cuts: dict[str, None]) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        # A map by name is a list too; that of a struct is short.
        if len(items) > max(rows, 50):
            cuts[f"{where or 'answer'}: {max(rows, 50)} of {len(items)} entries are shown"] = None
            items = items[: max(rows, 50)]
        return {key: _cut(item, f"{where}.{key}".lstrip("."), rows, chars, cuts) for key, item in items}
    if isinstance(value, list):
        if len(value) > rows:
            cuts[f"{where or 'answer'}: {rows} of {len(value)} rows are shown; ask for less, or by name"] = None
        return [_cut(item, where, rows, chars, cuts) for item in value[:rows]]
    if isinstance(value, str) and len(value) > chars:
        cuts[f"{where}: a text was cut to {chars} characters"] = None
        return value[:chars] + "..."
    return value
