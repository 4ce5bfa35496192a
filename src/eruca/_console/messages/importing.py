"""Import a file: lines of JSON, as the commands and the exports of this console write them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Final

from starlette.datastructures import FormData, UploadFile

from eruca._admin.drafts import DraftLine, Sent, read_lines, send_draft
from eruca._console.identity.rights import Need
from eruca._console.messages.sending import read_sent
from eruca._console.pages.forms import Field, FormRefused, change, read_fields
from eruca._console.pages.routing import Route
from eruca._console.pages.visit import Shown, Visit
from eruca._ground.limits import CONSOLE_IMPORT_BYTES_MAX, CONSOLE_IMPORT_LINES_MAX
from eruca._wire.names import check_topic

_FIELDS: Final = (Field("topic", "messages.to_topic", required=True, chars_max=127),)
_FORM_BYTES: Final = 64 * 1024
_NAME_CHARS_MAX: Final = 100
# Names of the flow: the file is gone after the preview, its messages are in the plan.
_NAME, _DIGEST = "file_name", "file_digest"


async def import_file(visit: Visit) -> Shown:
    """Send the messages of a file, with an outcome for each line."""
    if visit.method == "GET":
        return visit.show(
            "messages/import.html",
            fields=_FIELDS,
            lines_max=CONSOLE_IMPORT_LINES_MAX,
            bytes_max=CONSOLE_IMPORT_BYTES_MAX,
            back=visit.url("messages", topic=visit.query.get("topic")),
            command=visit.command("message", "import", visit.query.get("topic") or "TOPIC", "FILE.jsonl"),
        )
    topic = check_topic(read_fields(visit, _FIELDS)["topic"])
    lines: list[DraftLine] = []
    if not visit.form.get("plan"):
        name, digest, lines = await _read_upload(visit, topic)
        visit = replace(visit, form=_name_file(visit, name, digest))
    name, digest = str(visit.form.get(_NAME, ""))[:_NAME_CHARS_MAX], str(visit.form.get(_DIGEST, ""))[:12]

    async def deed(dry_run: bool) -> list[Sent]:
        return [await _send_line(visit, line, topic, dry_run=dry_run) for line in lines]

    return await change(
        visit,
        action="message.import",
        target=topic,
        words=["message", "import", topic, name or f"{digest}.jsonl"],
        deed=deed,
        then=visit.url("messages", topic=topic),
        read=lambda result: read_sent(result, [line.draft for line in lines if line.draft is not None]),
    )


async def _send_line(visit: Visit, line: DraftLine, topic: str, *, dry_run: bool) -> Sent:
    name = visit.text("messages.line", line=line.line)
    if line.draft is None:
        return Sent(name=name, topic=topic, outcome="failed", reason=line.problem)
    return await send_draft(visit.admin.messages, line.draft, dry_run=dry_run, name=name)


async def _read_upload(visit: Visit, topic: str) -> tuple[str, str, list[DraftLine]]:
    """Return name, digest and messages of the uploaded file. Raises FormRefused."""
    file: Any = visit.form.get("file")
    if isinstance(file, UploadFile):
        name, data = file.filename or "", await file.read(CONSOLE_IMPORT_BYTES_MAX + 1)
    else:
        name, data = "messages.jsonl", str(file or "").encode()
    if not data:
        raise FormRefused({"file": visit.text("forms.required")})
    if len(data) > CONSOLE_IMPORT_BYTES_MAX:
        raise FormRefused({"file": visit.text("messages.import.too_large", size=CONSOLE_IMPORT_BYTES_MAX)})
    lines = list(read_lines(data, topic, lines_max=CONSOLE_IMPORT_LINES_MAX))
    return name.rpartition("/")[2][:_NAME_CHARS_MAX], hashlib.sha256(data).hexdigest()[:12], lines


def _name_file(visit: Visit, name: str, digest: str) -> FormData:
    texts = [(each, value) for each, value in visit.form.multi_items() if isinstance(value, str) and each != "file"]
    return FormData([*texts, (_NAME, name), (_DIGEST, digest)])


ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/messages/import",
        import_file,
        Need.OPERATE,
        ("GET", "POST"),
        names={"topic": "topic"},
        summary="Send the messages of a file: lines of JSON.",
        fields={"topic": "where to", "file": "the file, or its text"},
        body_max=CONSOLE_IMPORT_BYTES_MAX + _FORM_BYTES,
    ),
)
