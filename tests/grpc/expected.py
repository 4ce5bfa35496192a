"""The outcome of every scenario, and what some clients do not have."""

from __future__ import annotations

from tests.grpc.scenarios import Facts

_NORMAL: Facts = {
    "body": True,
    "topic": True,
    "id": True,
    "tag": "fresh",
    "keys": ["k1", "k2"],
    "colour": "grün",
    "attempt": 1,
    "more": [],
}

EXPECTED: dict[str, Facts] = {
    "start": {"missing": "TOPIC_NOT_FOUND"},
    "normal": _NORMAL,
    "fifo": {"order": {"A": ["A0", "A1", "A1", "A2", "A3", "A4"], "B": ["B0", "B1", "B2", "B3", "B4"]}},
    "delay": {"order": ["soon", "late"], "too early": [], "attempts": [1, 1]},
    "recall": {"id": True, "came": ["kept"]},
    "transaction": {"came": ["first", "second"]},
    "check_back": {"came": ["asked"], "asked": ["asked"], "asked the other": ["never"], "of the other": [0, 0]},
    "push": {"each once": True, "attempts": [1]},
    "push_failure": {"bad": [1, 2, 3], "good": [1], "waited": True, "same id": True},
    "dead_letter": {"bad": [1, 2], "good": [1], "dead": 1},
    "members": {"all came": True},
    "renewal": {"attempts": [1]},
    "simple_ack": {"first": [("done", 1), ("left", 1)], "again": [("left", 2)], "waited": True, "more": []},
    "simple_change": {"attempts": [1, 2], "same id": True, "waited": True, "sooner": True, "more": []},
    "tags": {"came": ["a", "c"]},
    "sql": {"came": ["m1", "m3"]},
    "secret": {"came": ["signed"], "wrong": "UNAUTHORIZED"},
    "tls": _NORMAL,
}

# What a client does not have, so that the cell is not there. The reasons are shown at the end of a run.
LACKING: dict[tuple[str, str], str] = {
    ("go", "recall"): "the Go client 5.1.3 cannot recall a message, and its receipt has no handle for it",
}

# These take a minute or more.
SLOW = frozenset(["renewal"])
# `make test` runs these cells of each server.
SLICE = frozenset(
    [
        ("java", "normal"),
        ("java", "push_failure"),
        ("java", "check_back"),
        ("java", "fifo"),
        ("go", "push"),
        ("go", "transaction"),
        ("python", "normal"),
        ("python", "push"),
        ("node", "simple_change"),
        ("node", "tags"),
    ]
)
