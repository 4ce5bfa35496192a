"""The options of watching and of the delivery of alarms."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from eruca._ground.config import option


class MailTls(enum.Enum):
    """How the connection to the mail server is protected."""

    STARTTLS = "starttls"
    # From the first byte, usually port 465.
    ALWAYS = "always"
    # A mail server on this host.
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class WatchingOptions:
    """How often the console looks at clusters, and how it delivers alarms."""

    interval_ms: int = option(
        10_000,
        "consoleWatchInterval",
        "shortest time between two looks at lag and rates; looks are rarer in a large cluster",
        unit="ms",
        low=100,
    )
    webhook_targets: str = option(
        "",
        "alarmWebhookTargets",
        "hosts (`hooks.example.com`, `*.example.com`, with `:port` for one port) and networks (`10.1.0.0/16`) that"
        " webhooks may reach, separated by `;`; empty: every public address, no private one",
    )
    mail_host: str = option("", "alarmMailHost", "the mail server (SMTP); empty: alarms are not sent by e-mail")
    mail_port: int = option(587, "alarmMailPort", "port of the mail server", low=1, high=65_535)
    mail_tls: MailTls = option(
        MailTls.STARTTLS,
        "alarmMailTls",
        "`starttls`, `always` (from the first byte) or `never` (a server on this host)",
    )
    mail_ca: str = option("", "alarmMailCaFile", "CA certificates to trust for the mail server; empty: the system's")
    mail_user: str = option("", "alarmMailUser", "user at the mail server; empty: no log-in")
    mail_password: str = option("", "alarmMailPassword", "password of that user", secret=True)
    mail_from: str = option("eruca@localhost", "alarmMailFrom", "sender of alarms")
