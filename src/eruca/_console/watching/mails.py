"""Sending a mail by SMTP, in a thread."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from typing import Final

from eruca._console.watching.options import MailTls, WatchingOptions
from eruca.errors import ConfigError, ConnectFailed

TIMEOUT_S: Final = 20.0


class Mailer:
    """Sends mails through the server that the options name."""

    def __init__(self, options: WatchingOptions) -> None:
        self._options = options

    @property
    def is_configured(self) -> bool:
        """Whether there is a mail server."""
        return bool(self._options.mail_host)

    async def send(self, mail: EmailMessage) -> None:
        """Send one mail. Raises ConfigError without a mail server, and ConnectFailed if it does not take the mail."""
        if not self.is_configured:
            raise ConfigError("no mail server is configured", hint="set alarmMailHost for the console")
        try:
            await asyncio.to_thread(self._send, mail)
        except (OSError, smtplib.SMTPException) as error:
            raise ConnectFailed(f"the mail server did not take it: {_explain(error)}") from None

    def _send(self, mail: EmailMessage) -> None:
        options = self._options
        if options.mail_tls is MailTls.NEVER:
            with smtplib.SMTP(options.mail_host, options.mail_port, timeout=TIMEOUT_S) as server:
                self._pass(server, mail)
            return
        context = ssl.create_default_context(cafile=options.mail_ca or None)
        if options.mail_tls is MailTls.ALWAYS:
            with smtplib.SMTP_SSL(options.mail_host, options.mail_port, timeout=TIMEOUT_S, context=context) as server:
                self._pass(server, mail)
            return
        with smtplib.SMTP(options.mail_host, options.mail_port, timeout=TIMEOUT_S) as server:
            # Raises if the server does not offer it: alarms and the password never go out in plain text.
            server.starttls(context=context)
            self._pass(server, mail)

    def _pass(self, server: smtplib.SMTP, mail: EmailMessage) -> None:
        if self._options.mail_user:
            server.login(self._options.mail_user, self._options.mail_password)
        refused = server.send_message(mail)
        if refused:
            raise smtplib.SMTPRecipientsRefused(refused)


def _explain(error: Exception) -> str:
    """Return the reason without what the server was sent."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f"it refused {', '.join(sorted(error.recipients))}"
    if isinstance(error, smtplib.SMTPResponseException):
        said = error.smtp_error
        return f"{error.smtp_code} {said.decode('utf-8', 'replace') if isinstance(said, bytes) else said}"
    return str(error) or type(error).__name__
