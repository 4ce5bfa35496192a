"""The tables of users, sessions and the audit log in the console's state file."""

from __future__ import annotations

from typing import Final

from eruca._console.state import Schema

IDENTITY: Final = Schema(
    "identity",
    (
        """
        CREATE TABLE users (
            name TEXT PRIMARY KEY,
            role TEXT NOT NULL,
            grants TEXT NOT NULL,
            password TEXT,
            must_change INTEGER NOT NULL,
            disabled INTEGER NOT NULL,
            issuer TEXT,
            subject TEXT,
            made_ms INTEGER NOT NULL,
            seen_ms INTEGER NOT NULL,
            UNIQUE (issuer, subject)
        ) STRICT
        """,
        # The id of a session is in the cookie only: here is its hash.
        """
        CREATE TABLE sessions (
            hash TEXT PRIMARY KEY,
            user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
            made_ms INTEGER NOT NULL,
            seen_ms INTEGER NOT NULL,
            address TEXT NOT NULL,
            agent TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX sessions_by_user ON sessions (user, seen_ms)",
        """
        CREATE TABLE audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL,
            user TEXT NOT NULL,
            address TEXT NOT NULL,
            cluster TEXT NOT NULL,
            action TEXT NOT NULL,
            target TEXT NOT NULL,
            command TEXT NOT NULL,
            before TEXT NOT NULL,
            after TEXT NOT NULL,
            outcome TEXT NOT NULL,
            reason TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX audit_by_time ON audit (at_ms)",
        # Rows expire, and never change.
        """
        CREATE TRIGGER audit_is_final BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
        """,
        """
        CREATE TABLE masks (
            id INTEGER PRIMARY KEY,
            prefix TEXT NOT NULL,
            fields TEXT NOT NULL,
            role TEXT NOT NULL
        ) STRICT
        """,
    ),
)
