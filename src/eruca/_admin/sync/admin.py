"""`eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.admin` and
`eruca._admin.sync.operating`; do not edit.
"""

from __future__ import annotations

from collections.abc import Sequence

from eruca._admin.admin import Admin as AsyncAdmin
from eruca._admin.sync.operating import PlainAdmin
from eruca._client.options import ClientOptions


class Admin(PlainAdmin):
    """Operates a cluster of Eruca or Java brokers.

    >>> with Admin("127.0.0.1:9876") as admin:
    ...     group = admin.groups.show("billing")
    ...     print(group.lag, [member.client_id for member in group.members])

    Each subject is a part: `topics`, `groups`, `offsets`, `messages`, `dead_letters`, `transactions`, `delayed`,
    `clients`, `brokers`, `cluster`, `nameservers`, `accounts`, `routes`, `doctor`. A list has a limit, and is `cut` if
    there is more. A server that does not answer is among the `problems` of a result and does not hide the others.
    Whatever changes or destroys something has `dry_run`, and returns what was before and after, and how to undo it.

    It does not join a group, so brokers do not count it as a client. Names of topics and groups are those that brokers
    use, with the namespace if there is one.
    """

    def __init__(self, nameservers: str | Sequence[str] | None = None, options: ClientOptions | None = None) -> None:
        super().__init__(AsyncAdmin(nameservers, options))
