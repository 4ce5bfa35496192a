"""Scenario files of the failover machine: one event per line, the machine's actions indented below it.

    member 1                      which member this is; `founder` behind it: configured as the master
    required 2                    copies needed for an acknowledgement

    +0.1 granted lease=71         this happens, 0.1 seconds after the previous line
        publish round=0           and this is the action of the machine
    = leading                     its phase now

A view of etcd has parts: `seen rev=9 | master m0 epoch=2 rev=8 lease=70 | state epoch=2 set=0,1 rev=8 | m1 rev=5`.
Parts that are unchanged since the previous view are written `...`, an unreadable one `master damaged lease=70`.
`ERUCA_REWRITE=1` writes the machine's actions into the files, for a reader to judge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eruca._core.failover.machine import Failover
from eruca._core.failover.rules import Identity, Rules
from eruca._core.failover.view import (
    Acknowledge,
    Action,
    Call,
    ChangeSet,
    Claim,
    Claimed,
    ClaimRefused,
    Detach,
    Event,
    Failed,
    Fence,
    Follow,
    Forced,
    Grant,
    Keep,
    Lead,
    LeaseGranted,
    LeaseKept,
    MasterEntry,
    MemberEntry,
    Progress,
    Publish,
    Published,
    Replaced,
    Require,
    Revoke,
    Revoked,
    RoleDone,
    RoleFailed,
    Seen,
    SetChanged,
    SetRefused,
    StateEntry,
    StepDown,
    Tell,
    Tick,
    View,
)

_CALLS: dict[str, type[Call]] = {
    "grant": Grant,
    "keep": Keep,
    "revoke": Revoke,
    "publish": Publish,
    "claim": Claim,
    "change-set": ChangeSet,
}


class Script:
    """Plays a scenario and writes down what the machine does."""

    def __init__(self) -> None:
        self._machine: Failover | None = None
        self._member = 0
        self._is_founder = False
        self._required = 2
        self._now = 0.0
        self._view = View(0)
        self._calls: dict[type[Call], Call] = {}
        self._ticket = 0

    def play(self, text: str) -> str:
        """The scenario with the machine's actions in place of those in the file."""
        out: list[str] = []
        for line in text.splitlines():
            stripped = line.strip()
            if not stripped or stripped.startswith("#"):
                out.append(line)
            elif line.startswith(("member", "required")):
                out.append(line)
                self._set_up(stripped.split())
            elif line.startswith("="):
                assert self._machine is not None
                out.append(f"= {self._machine.phase.value}")
            elif not line.startswith(" "):
                out.append(line)
                out += [f"    {self._write(action)}" for action in self._happen(line)]
        return "\n".join(out) + "\n"

    def _set_up(self, words: list[str]) -> None:
        if words[0] == "required":
            self._required = int(words[1])
        else:
            self._member, self._is_founder = int(words[1]), "founder" in words

    def _happen(self, line: str) -> list[Action]:
        if self._machine is None:
            identity = Identity(self._member, f"m{self._member}", self._is_founder)
            self._machine = Failover(identity, Rules(), required=self._required)
        step, _, rest = line.partition(" ")
        self._now = round(self._now + float(step), 6)
        actions = self._machine.handle(self._read(rest), self._now)
        for action in actions:
            if isinstance(action, Grant | Keep | Revoke | Publish | Claim | ChangeSet):
                self._calls[type(action)] = action
            elif isinstance(action, Lead | Follow | Detach | Fence):
                self._ticket = action.ticket
        return actions

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, text: str) -> Event:
        head, _, rest = text.partition("|")
        word, *pairs = head.split()
        values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        number = {key: float(value) for key, value in values.items() if value.replace(".", "").isdecimal()}
        lease = int(number.get("lease", 71))
        revision = int(number.get("rev", 0))
        seconds = number.get("seconds", 3.0)
        sent = self._now - number.get("ago", 0.0)
        match word:
            case "tick":
                return Tick()
            case "seen":
                self._view = self._read_view(revision, rest)
                return Seen(self._view)
            case "replaced":
                self._view = self._read_view(revision, rest)
                return Replaced(self._view)
            case "granted":
                return LeaseGranted(lease, seconds, sent)
            case "kept":
                return LeaseKept(lease, seconds, sent)
            case "revoked":
                return Revoked(lease)
            case "published":
                return Published(revision)
            case "claimed":
                return Claimed(int(number["epoch"]), revision)
            case "claim-refused":
                return ClaimRefused(revision)
            case "set-changed":
                return SetChanged(_read_set(values["set"]), revision)
            case "set-refused":
                return SetRefused(revision)
            case "failed":
                return Failed(self._calls[_CALLS[pairs[0]]])
            case "role-done":
                return RoleDone(int(number.get("ticket", self._ticket)), int(number.get("position", 0)))
            case "role-failed":
                return RoleFailed(int(number.get("ticket", self._ticket)), "the disk is full")
            case "progress":
                reports = {int(key[1:]): int(at) for key, at in number.items() if key[0] == "m"}
                tail = int(number["tail"])
                return Progress(tail, int(number.get("confirmed", tail)), self._required, reports)
            case "forced":
                return Forced(seconds)
            case "step-down":
                return StepDown(seconds)
        raise AssertionError(f"what is {text!r}?")

    def _read_view(self, revision: int, text: str) -> View:
        view = View(revision)
        for part in (part.strip() for part in text.split("|")):
            if part == "...":
                view = replace(self._view, revision=revision)
            elif part.startswith("no "):
                view = _remove(view, part.removeprefix("no "))
            elif part:
                view = _put(view, part, revision)
        return view

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self, action: Action) -> str:
        match action:
            case Grant():
                return "grant"
            case Keep(lease):
                return f"keep lease={lease}"
            case Revoke(lease):
                return f"revoke lease={lease}"
            case Publish(lease, number, is_cold, revision):
                return f"publish round={number} over={revision} lease={lease}{' cold' if is_cold else ''}"
            case Claim(epoch, in_sync, lease, state_revision, seen, master_revision):
                members = " ".join(f"m{member}@{at}" for member, at in seen)
                master = f"master@{master_revision}" if master_revision else "no master"
                found = f"{master}, state@{state_revision} {members}".rstrip()
                return f"claim epoch={epoch} set={_write_set(in_sync)} lease={lease} if {found}"
            case ChangeSet(epoch, members, master_revision, state_revision):
                found = f"master@{master_revision} state@{state_revision}"
                return f"change-set epoch={epoch} set={_write_set(members)} if {found}"
            case Lead(_, epoch):
                return f"lead epoch={epoch}"
            case Follow(_, master):
                return f"follow m{master.member} epoch={master.epoch}"
            case Detach():
                return "detach"
            case Fence(_, why):
                return f"fence: {why}"
            case Acknowledge(until):
                left = until - self._now
                return f"acknowledge for {left:.2f} s" if left > 0 else "acknowledge nothing"
            case Require(members):
                return f"require {_write_set(members)}"
            case Tell(text, _):
                return f"tell: {text}"


def _remove(view: View, name: str) -> View:
    if name == "master":
        return replace(view, master=None)
    return replace(view, members={key: item for key, item in view.members.items() if f"m{key}" != name})


def _put(view: View, part: str, revision: int) -> View:
    name, *words = part.split()
    values: dict[str, Any] = dict(word.split("=", 1) for word in words if "=" in word)
    at = int(values.get("rev", revision))
    version = int(values.get("version", 0))
    if words and words[0] == "damaged":
        return _damage(view, name, at, version, int(values.get("lease", 0)))
    if name == "state":
        return replace(view, state=StateEntry(int(values["epoch"]), _read_set(values["set"]), at, version))
    if name == "master":
        owner = words[0]
        number = int(owner[1:])
        lease = int(values.get("lease", 70 + number))
        return replace(view, master=MasterEntry(int(values["epoch"]), number, owner, owner, lease, at))
    number = int(name[1:])
    epoch = int(values.get("epoch", 1))
    entry = MemberEntry(
        number,
        values.get("address", name),
        name,
        int(values.get("position", 0)),
        epoch,
        int(values.get("seen", epoch)),
        int(values.get("round", 0)),
        "cold" in words,
        int(values.get("lease", 70 + number)),
        at,
        frozenset(values["known"].split(",")) if "known" in values else frozenset(),
        values.get("store", ""),
    )
    return replace(view, members={**view.members, number: entry})


def _damage(view: View, name: str, at: int, version: int, lease: int) -> View:
    if name == "state":
        return replace(view, state=StateEntry(0, frozenset(), at, version, is_damaged=True))
    if name == "master":
        return replace(view, master=MasterEntry(0, -1, "", "", lease, at))
    number = int(name[1:])
    entry = MemberEntry(number, "", "", 0, 0, 0, 0, False, lease, at)
    return replace(view, members={**view.members, number: entry})


def _read_set(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)


def _write_set(members: frozenset[int]) -> str:
    return ",".join(str(member) for member in sorted(members)) or "nobody"
