"""Logs as JSON: one object per line, with the ids of the current span."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

from opentelemetry.sdk.trace import TracerProvider

from eruca._observe.logs import JsonFormatter


def write(**extra: object) -> dict[str, str]:
    record = logging.LogRecord("eruca.net.link", logging.WARNING, "file", 1, "closed %s", ("1.2.3.4",), None)
    record.__dict__.update(extra)
    found: dict[str, str] = json.loads(JsonFormatter().format(record))
    return found


def test_one_object() -> None:
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
