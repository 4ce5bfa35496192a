"""`eruca message import`: send the messages of a file."""

from __future__ import annotations

from typing import IO

import click

from eruca._admin.drafts import DraftLine, Sent, read_lines, send_draft
from eruca._cli.administer import end_with, operate
from eruca._cli.changing import add_dry_run_option
from eruca._cli.choosing import add_topic_argument
from eruca._cli.connecting import add_nameserver_option
from eruca._cli.grouping import SectionedCommand
from eruca._cli.output import add_output_option, print_rows
from eruca._ground.limits import IMPORT_BYTES_MAX, IMPORT_LINES_MAX
from eruca.admin import Admin
from eruca.errors import ConfigError


@click.command("import", cls=SectionedCommand)
@add_topic_argument
@click.argument("file", type=click.File("rb"))
@add_dry_run_option
@add_nameserver_option
@add_output_option
def import_(topic: str, file: IO[bytes], dry_run: bool, nameservers: str, output: str) -> None:
    """Send the messages of FILE to TOPIC: one JSON object per line, as `message find -o json` prints them.

    A line needs `body` (text or JSON) or `body_base64`; it may have `tags`, `keys`, `properties` and `shard`. Other
    fields are ignored. `-` is standard input. Every line gets an outcome; the exit status is 1 if any failed.

    \b
    Examples:
      eruca message find orders --key order-7 -o json > messages.jsonl
      eruca message import orders-copy messages.jsonl --dry-run
      eruca message import orders-copy messages.jsonl
    """
    data = file.read(IMPORT_BYTES_MAX + 1)
    if len(data) > IMPORT_BYTES_MAX:
        raise ConfigError(f"the file is larger than {IMPORT_BYTES_MAX} bytes", hint="split it")
    lines = list(read_lines(data, topic, lines_max=IMPORT_LINES_MAX))

    async def work(admin: Admin) -> list[Sent]:
        return [await _send(admin, line, topic, dry_run) for line in lines]

    sent = operate(nameservers, work)
    print_rows(sent, output, ["line", "outcome", "message id", "reason"], _draw_sent)
    end_with(row.outcome for row in sent)


async def _send(admin: Admin, line: DraftLine, topic: str, dry_run: bool) -> Sent:
    if line.draft is None:
        return Sent(name=str(line.line), topic=topic, outcome="failed", reason=line.problem)
    return await send_draft(admin.messages, line.draft, dry_run=dry_run, name=str(line.line))


def _draw_sent(row: Sent) -> tuple[str, ...]:
    return (row.name, row.outcome, row.message_id, row.reason)
