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
    "fifo": {
        "order": {"A": ["A0", "A1", "A2", "A3", "A4"], "B": ["B0", "B1", "B2", "B3", "B4"]},
        "topic": True,
        "attempts": [1],
    },
    "fifo_failure": {"order": ["A0", "A1", "A1", "A2", "A3", "A4"], "dead": 0},
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

_HIDES = "this client says only that it found no route"
_NODE_BACKOFF = (
    "the Node client 1.0.8 ignores the steps of the back-off (a customized one), and takes one attempt for all"
)
# What a client makes of it on any server: the facts that differ, and why.
PECULIAR: dict[tuple[str, str], tuple[Facts, str]] = {
    ("python", "start"): ({"missing": "no route"}, _HIDES),
    ("python", "secret"): ({"wrong": "no route"}, _HIDES),
    ("node", "start"): ({"missing": "no route"}, _HIDES),
    ("node", "secret"): ({"wrong": "no route"}, _HIDES),
    ("node", "push_failure"): ({"waited": False}, _NODE_BACKOFF),
    ("node", "fifo_failure"): ({"order": ["A0", "A1", "A2", "A3", "A4"], "dead": 1}, _NODE_BACKOFF),
    ("go", "fifo_failure"): (
        {"order": ["A0", "A1", "A2", "A3", "A4", "A1"]},
        "the Go client 5.1.3 goes on with the next message of the group while the failed one waits",
    ),
}

_NO_PUSH = "the Rust client 5.0.0 has no push consumer"
# What a client does not have, so that the cell is not there. The reasons are shown at the end of a run.
LACKING: dict[tuple[str, str], str] = {
    ("go", "recall"): "the Go client 5.1.3 cannot recall a message, and its receipt has no handle for it",
    ("rust", "recall"): "the Rust client 5.0.0 cannot recall a message",
    ("rust", "simple_change"): "the Rust client 5.0.0 cannot change an invisible time",
    **{
        ("rust", scenario): _NO_PUSH
        for scenario in ("fifo", "fifo_failure", "push", "push_failure", "dead_letter", "members", "renewal")
    },
}


def find_outcome(client: str, scenario: str) -> Facts:
    """What a cell finds, on any server."""
    different, _ = PECULIAR.get((client, scenario), ({}, ""))
    return EXPECTED[scenario] | different
