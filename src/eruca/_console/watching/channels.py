"""Channels: where alarms are delivered, and the text of a delivery."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from eruca._console.watching.alarms import Alarm, Event
from eruca._console.watching.rules import UNITS, Rule
from eruca._ground.urls import check_url
from eruca.errors import ConfigError

#: Alarms that one delivery names; it states how many there are.
NAMED_MAX: Final = 50
_URL_CHARS_MAX: Final = 2_000
_RECIPIENTS_MAX: Final = 20
_MAIL: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,255}")


class ChannelKind(StrEnum):
    """How a channel is reached."""

    WEBHOOK = "webhook"
    MAIL = "mail"


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """Where alarms are delivered."""

    id: int
    name: str
    kind: ChannelKind
    # A URL, or addresses separated by `,`.
    target: str
    # Signs the bodies of a webhook.
    secret: str = ""

    def __repr__(self) -> str:
        """Return it without the secret, and without the path of the URL, which often is one."""
        return f"Channel(id={self.id}, name={self.name!r}, kind={self.kind.value!r}, target={hide_target(self)!r})"


def hide_target(channel: Channel) -> str:
    """Return a target as it may be shown: of a URL the host only, because the path often is a secret."""
    if channel.kind is ChannelKind.MAIL:
        return channel.target
    parts = urlsplit(channel.target)
    origin = f"{parts.scheme}://{parts.netloc}"
    return origin if channel.target in (origin, f"{origin}/") else f"{origin}/..."


def check_target(kind: ChannelKind, target: str) -> str:
    """Return a target as it is stored. Raises ConfigError."""
    if kind is ChannelKind.WEBHOOK:
        if len(target) > _URL_CHARS_MAX or not target.isascii() or any(char <= " " for char in target):
            raise ConfigError("the URL is too long, or contains characters that a URL cannot have")
        check_url("url", target, "put a token into the path", may_have_query=True)
        return target
    found = [part.strip() for part in target.replace(";", ",").split(",") if part.strip()]
    bad = next((part for part in found if not _MAIL.fullmatch(part)), None)
    if not found or bad is not None:
        raise ConfigError(f"{bad or target!r} is not an e-mail address", hint="for example ops@example.com")
    if len(found) > _RECIPIENTS_MAX:
        raise ConfigError(f"{len(found)} recipients: the maximum is {_RECIPIENTS_MAX}")
    return ", ".join(found)


# --- text -------------------------------------------------------------------------------------------------------------


def describe_alarm(alarm: Alarm) -> str:
    """Return one line about an alarm."""
    detail = f" ({alarm.detail})" if alarm.detail else ""
    return f"{alarm.kind.value} of {alarm.target} is {alarm.value:,.0f} {UNITS[alarm.kind]}{detail}"


def make_report(event: Event, rule: Rule, alarms: Sequence[Alarm], now: datetime, url: str) -> dict[str, Any]:
    """Return the body of a delivery; `url` is that of the console, or empty."""
    return {
        "event": event.value,
        "at": now.isoformat(),
        "rule": {"name": rule.name, "kind": rule.kind.value, "threshold": rule.threshold, "duration": rule.duration},
        "count": len(alarms),
        "alarms": [
            {
                "id": alarm.id,
                "state": alarm.state.value,
                "cluster": alarm.cluster,
                "target": alarm.target,
                "value": alarm.value,
                "unit": UNITS[alarm.kind],
                "peak": alarm.peak,
                "since": alarm.since.isoformat(),
                "acknowledged_by": alarm.acknowledged_by,
                "text": describe_alarm(alarm),
                "url": f"{url.rstrip('/')}/c/{quote(alarm.cluster, safe='')}/alarms" if url else "",
            }
            for alarm in alarms[:NAMED_MAX]
        ],
    }


def make_mail(report: dict[str, Any], sender: str, recipients: str, number: int) -> EmailMessage:
    """Return a report as a mail."""
    alarms = report["alarms"]
    first = alarms[0]["text"] if alarms else "a test"
    more = f" and {report['count'] - 1} more" if report["count"] > 1 else ""
    mail = EmailMessage()
    mail["Subject"] = " ".join(f"[eruca] {report['event']}: {first}{more}".split())
    mail["From"] = sender
    mail["To"] = recipients
    mail["Message-ID"] = f"<alarm-{number}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    rule = report["rule"]
    lines = [f"{report['event']} since {report['at']}, rule {rule['name']} (from {rule['threshold']:,.0f} on)", ""]
    for alarm in alarms:
        lines += [f"* {alarm['text']}", f"  cluster {alarm['cluster']}, since {alarm['since']}"]
        lines += [f"  {alarm['url']}"] if alarm["url"] else []
    if report["count"] > len(alarms):
        lines.append(f"... and {report['count'] - len(alarms)} more")
    mail.set_content("\n".join(lines) + "\n")
    return mail
