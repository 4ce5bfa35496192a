"""Lines of the log."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider

from eruca._observe.logs import JsonFormatter, LineFormatter

# A name that would add a line to the log, and clear the screen of whoever reads it.
FORGED = "payers\n2026-01-01T00:00:00.000 INFO    broker.app: all is well\x1b[2J\u2028\x85"


def make_record(**more: object) -> logging.LogRecord:
    record = logging.LogRecord("eruca.broker.app", logging.WARNING, __file__, 1, "group %s é 名", (FORGED,), None)
    record.__dict__.update(more)
    return record


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()])
def test_what_a_peer_chose_stays_in_its_line(formatter: logging.Formatter) -> None:
    line = formatter.format(make_record(client=FORGED))
    assert "\n" not in line and "\x1b" not in line
    assert "é 名" in line and r"payers\n2026" in line


def test_a_line_of_the_log_is_one_line_for_people() -> None:
    line = LineFormatter().format(make_record(client=FORGED))
    assert len(line.splitlines()) == 1
    assert " WARNING broker.app: group payers" in line and " client=payers" in line


def test_a_traceback_follows_indented() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        lines = LineFormatter().format(make_record(exc_info=sys.exc_info())).split("\n")
    assert all(line.startswith("  ") for line in lines[1:]) and lines[-1] == "  ValueError: broken"


def test_a_line_is_an_object_for_machines() -> None:
    fields = json.loads(JsonFormatter().format(make_record(client="c-1")))
    assert (fields["level"], fields["room"], fields["client"]) == ("WARNING", "broker.app", "c-1")
    assert fields["message"] == f"group {FORGED} é 名"


def write(**extra: object) -> dict[str, str]:
    record = logging.LogRecord("eruca.net.link", logging.WARNING, "file", 1, "closed %s", ("1.2.3.4",), None)
    record.__dict__.update(extra)
    found: dict[str, str] = json.loads(JsonFormatter().format(record))
    return found


def test_an_object_has_what_the_record_has() -> None:
    fields = write(peer="1.2.3.4:5")
    assert {key: fields[key] for key in fields if key != "time"} == {
        "level": "WARNING",
        "room": "net.link",
        "message": "closed 1.2.3.4",
        "peer": "1.2.3.4:5",
    }


def test_a_span_that_is_current() -> None:
    with TracerProvider().get_tracer("test").start_as_current_span("work") as span:
        fields = write()
    context = span.get_span_context()
    assert int(fields["trace_id"], 16) == context.trace_id
    assert int(fields["span_id"], 16) == context.span_id
    assert "trace_id" not in write()


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    script = """
import sys, logging
from eruca._observe.logs import JsonFormatter
JsonFormatter().format(logging.makeLogRecord({"msg": "x", "name": "eruca"}))
sys.exit("opentelemetry" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
