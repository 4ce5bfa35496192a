"""`Transactions` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.transactions` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from eruca._admin.results import LIMIT, Listed
from eruca._admin.storedmessages import StoredMessage
from eruca._admin.sync.base import PlainPart
from eruca._admin.transactions import Deed
from eruca._admin.transactions import Transactions as AsyncTransactions
from eruca._admin.transactiontable import UNDECIDED, State, Transaction


class Transactions(PlainPart[AsyncTransactions]):
    """Lists, resumes and discards transactions: `admin.transactions`."""

    def list(
        self,
        states: Collection[State] = UNDECIDED,
        *,
        limit: int = LIMIT,
        progress: Callable[[int], None] | None = None,
    ) -> Listed[Transaction]:
        """Return the transactions in some states, by broker and in the order in which they began.

        Undecided ones are quick to list: they are after the position up to which their broker has checked. Others take
        longer: to tell committed from rolled back, brokers are asked for the message of each. The same is true for a
        broker that has given some up, because they may have been decided since. `progress` is called with the number of
        records read.
        """
        return self._run(self._twin.list(states, limit=limit, progress=progress))

    def find(self, name: str) -> Transaction:
        """Return the transaction with a message id or an offset id, in any state. Raises ConfigError."""
        return self._run(self._twin.find(name))

    def view(self, row: Transaction) -> StoredMessage:
        """Return the message of a transaction, with its body."""
        return self._run(self._twin.view(row))

    def resume(self, row: Transaction, *, dry_run: bool = False) -> Deed:
        """Make a broker ask the producers again about a transaction it has given up."""
        return self._run(self._twin.resume(row, dry_run=dry_run))

    def discard(self, row: Transaction, *, dry_run: bool = False) -> Deed:
        """Roll back a prepared transaction in place of its producer, which is no longer asked about it."""
        return self._run(self._twin.discard(row, dry_run=dry_run))
