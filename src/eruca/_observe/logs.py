"""Structured logs to stderr, one line per event. Nothing is ever written to the home directory."""

from __future__ import annotations

import enum
import json
import logging
import sys
import time
from typing import Final

from eruca._ground.printable import show_safely

_LOGGER: Final = "eruca"
#: Explains the option of each server.
LOG_LEVEL_DOC: Final = "log events of this level and worse ones"
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class LogLevel(enum.Enum):
    """Which events are logged: those of this level, and worse ones."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"

    @classmethod
    def _missing_(cls, value: object) -> LogLevel | None:
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class LineFormatter(logging.Formatter):
    """`time level room: message key=value`, for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one line; a traceback follows indented."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created)) + f".{int(record.msecs):03d}"
        room = record.name.removeprefix("eruca.")
        text = record.getMessage()
        extra = " ".join(f"{key}={value}" for key, value in _extra(record).items())
        if extra:
            text = f"{text} {extra}"
        text = f"{stamp} {record.levelname:<7} {room}: {show_safely(text)}"
        if record.exc_info:
            text += "\n  " + self.formatException(record.exc_info).replace("\n", "\n  ")
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for machines; inside a span of OpenTelemetry with its ids."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one object."""
        fields = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "room": record.name.removeprefix("eruca."),
            "message": record.getMessage(),
            **{key: str(value) for key, value in _extra(record).items()},
            **_find_trace(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _find_trace() -> dict[str, str]:
    """Return the ids of the current span of OpenTelemetry; empty without one."""
    if "opentelemetry" not in sys.modules:
        return {}  # no span can be current, and the import takes time
    try:
        from opentelemetry import trace
    except ImportError:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def set_up_logs(level: LogLevel = LogLevel.INFO, *, as_json: bool = False) -> None:
    """Send the logs of all packages to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    logger = logging.getLogger(_LOGGER)
    logger.handlers[:] = [handler]
    logger.propagate = False
    set_log_level(level)


def set_log_level(level: LogLevel) -> None:
    """Change which events are logged; servers of one process share their log."""
    logging.getLogger(_LOGGER).setLevel(level.value)
