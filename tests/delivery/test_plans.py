"""The checks of the delivery parts: facts of a good run pass, and every error is found."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.delivery.plans import LATE_MS_MAX, PARTS, QUEUES
from tests.interop.behaviour import Facts


def _make_good(name: str) -> Facts:
    """The facts of a run without errors."""
    plan = PARTS[name].plan
    if name == "order":
        done = {str(queue): [n for n, where in enumerate(plan["queues"]) if where == queue] for queue in range(QUEUES)}
        tries = len(plan["queues"]) + sum(plan["suspends"].values())
        return {"done": done, "tries": tries, "two at a time in a queue": 0}
    if name == "retry":
        times = {str(n): list(range(min(count, 3) + 1)) for n, count in enumerate(plan["failures"])}
        levels = {number: [None, *["1"] * (len(seen) - 1)] for number, seen in times.items()}
        dead = {str(n): 4 for n, count in enumerate(plan["failures"]) if count > 3}
        return {"times": times, "levels": levels, "dead": dead, "letters": len(dead)}
    if name == "delay":
        return {"late": [[number, number % (LATE_MS_MAX + 1)] for number in range(len(plan["levels"]))]}
    if name == "transactions":
        outcomes = plan["outcomes"]
        visible = [number for number, outcome in enumerate(outcomes) if outcome[-1] == "c"]
        asked = {str(number): len(outcome) - 1 for number, outcome in enumerate(outcomes) if len(outcome) > 1}
        return {"visible": visible, "asked": asked, "asked about decided ones": 0}
    if name == "reset":
        return {"first": list(range(80)), "to": [10] * 4, "again": list(range(40, 80))}
    assert name == "requests"
    return {"replies": [f"re q{number}" for number in range(50)], "answered": 50}


GOOD = {name: _make_good(name) for name in ("order", "retry", "delay", "transactions", "reset", "requests")}


def _swap(numbers: list[Any]) -> None:
    numbers[3], numbers[4] = numbers[4], numbers[3]


# Errors, by part; each modifies good facts.
WRONGS: list[tuple[str, str, Any]] = [
    ("order", "out of order", lambda facts: _swap(facts["done"]["0"])),
    ("order", "lost", lambda facts: facts["done"]["7"].pop()),
    ("order", "twice", lambda facts: facts.update(tries=facts["tries"] + 1)),
    ("order", "two at a time", lambda facts: facts.update({"two at a time in a queue": 1})),
    ("retry", "not counted", lambda facts: next(t for t in facts["times"].values() if len(t) > 1).__setitem__(-1, 0)),
    ("retry", "a dead letter is lost", lambda facts: facts["dead"].popitem()),
    ("retry", "a dead letter comes twice", lambda facts: facts.update(letters=facts["letters"] + 1)),
    ("retry", "another delay", lambda facts: next(t for t in facts["levels"].values() if len(t) > 1).append("7")),
    ("delay", "early", lambda facts: facts["late"][0].__setitem__(1, -1)),
    ("delay", "late", lambda facts: facts["late"][0].__setitem__(1, LATE_MS_MAX + 1)),
    ("delay", "lost", lambda facts: facts["late"].pop()),
    ("delay", "twice", lambda facts: facts["late"].append([0, 0])),
    ("transactions", "a committed one is lost", lambda facts: facts["visible"].pop()),
    ("transactions", "a rolled back one is seen", lambda facts: facts["visible"].append(199)),
    ("transactions", "never asked", lambda facts: facts["asked"].popitem()),
    ("transactions", "asked for nothing", lambda facts: facts.update({"asked about decided ones": 1})),
    ("reset", "not back far enough", lambda facts: facts["again"].pop(0)),
    ("reset", "too far back", lambda facts: facts["to"].__setitem__(0, 9)),
    ("requests", "another's reply", lambda facts: _swap(facts["replies"])),
    ("requests", "answered twice", lambda facts: facts.update(answered=51)),
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_run_passes(name: str) -> None:
    assert PARTS[name].check(PARTS[name].plan, deepcopy(GOOD[name]))


@pytest.mark.parametrize(("name", "what", "change"), WRONGS, ids=[f"{name}-{what}" for name, what, _ in WRONGS])
def test_what_is_wrong_is_found(name: str, what: str, change: Any) -> None:
    facts = deepcopy(GOOD[name])
    change(facts)
    assert facts != GOOD[name]
    with pytest.raises(AssertionError):
        PARTS[name].check(PARTS[name].plan, facts)


@pytest.mark.parametrize("name", ["tags", "sql92"])
def test_filters_that_let_the_wrong_ones_through_are_found(name: str) -> None:
    part = PARTS[name]
    everything = list(range(len(part.plan["messages"])))
    for numbers in ([], everything):
        with pytest.raises(AssertionError):
            part.check(part.plan, {"got": dict.fromkeys(part.plan["groups"], numbers)})


def test_plans_have_every_outcome() -> None:
    outcomes = PARTS["transactions"].plan["outcomes"]
    assert len(outcomes) == 200
    assert set(outcomes) == {"c", "r", "uc", "ur", "uuc", "uur"}
    assert set(PARTS["delay"].plan["levels"]) == {1, 2, 3, 4}
    assert set(PARTS["order"].plan["queues"]) == set(range(QUEUES))
