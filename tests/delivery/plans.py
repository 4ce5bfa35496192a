"""Plans: what happens to each message of a delivery part, from a seed, and the expected result.

A plan goes unchanged to the Java program (`DeliveryCases.java`) and to ours (`pythonparts.py`); both return facts of
the same kind, and `check_*` compares them with the plan. Messages are identified by their numbers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.interop.behaviour import Facts

SEED = 20_061

QUEUES = 8
TIMES_MAX = 3
# The first four of the default levels.
LEVEL_MS = {1: 1000, 2: 5000, 3: 10_000, 4: 30_000}
# What a busy machine may add, less than the difference between two levels; `make bench ONLY=delay` measures it.
LATE_MS_MAX = 2000
# The first letter is what the sender decides, the others what it answers when it is asked.
OUTCOMES = ("c", "r", "uc", "ur", "uuc", "uur")
# Java's hash is the same for both.
COLLIDING = ("Aa", "BB")
# All subscribe to the last message of each queue: Java's client may report skipped messages only when a held pull ends.
TAG_GROUPS = {"one": "Aa || end", "two": "BB || green || end", "none": "nothing || end", "all": "*"}


@dataclass(frozen=True)
class Part:
    """One part of delivery: the case that runs it, its input, and the expected result."""

    case: str
    plan: dict[str, Any]
    # Raises AssertionError; returns what to print.
    check: Callable[[dict[str, Any], Facts], str]
    # Too long for the slice that `make test` runs.
    is_whole: bool = False


def _random(part: str) -> random.Random:
    return random.Random(f"{SEED}/{part}")


# --- order --------------------------------------------------------------------------------------------------------


def plan_order(count: int) -> dict[str, Any]:
    """Messages of 64 keys over the queues, and how often some of them are put off."""
    dice = _random("order")
    queues = [dice.randrange(64) % QUEUES for _ in range(count)]
    suspends = {str(number): dice.choice([1, 1, 2]) for number in sorted(dice.sample(range(count), count // 50))}
    return {"queues": queues, "suspends": suspends}


def check_order(plan: dict[str, Any], facts: Facts) -> str:
    """Each queue in the order of sending, one message at a time, nothing twice except what was suspended."""
    queues, suspends = plan["queues"], plan["suspends"]
    sent = {str(queue): [n for n, where in enumerate(queues) if where == queue] for queue in range(QUEUES)}
    assert facts["done"] == sent
    assert facts["two at a time in a queue"] == 0
    assert facts["tries"] == len(queues) + sum(suspends.values())
    return f"{len(queues)} messages over {QUEUES} queues in order, {len(suspends)} of them put off"


# --- retry --------------------------------------------------------------------------------------------------------


def plan_retries(count: int, level: int, most: int = TIMES_MAX) -> dict[str, Any]:
    """How often each message fails; more than `most` makes it a dead letter. Level 0 leaves the delay to the broker."""
    dice = _random("retries")
    failures = [number % (most + 2) for number in range(count)]
    dice.shuffle(failures)
    return {"failures": failures, "level": level, "most": most}


def check_retries(plan: dict[str, Any], facts: Facts) -> str:
    """Each message arrived once more than it failed, with the right count; exactly the hopeless ones are dead
    letters."""
    failures, most, level = plan["failures"], plan["most"], plan["level"]
    assert facts["times"] == {str(n): list(range(min(count, most) + 1)) for n, count in enumerate(failures)}
    hopeless = [number for number, count in enumerate(failures) if count > most]
    assert facts["dead"] == {str(number): most + 1 for number in hopeless}
    assert facts["letters"] == len(hopeless)
    for levels in facts["levels"].values():
        # The broker uses level 3 for the first retry, 4 for the second and so on.
        assert levels == [None, *[str(level or 3 + times) for times in range(len(levels) - 1)]]
    retries = sum(min(count, most) for count in failures)
    return f"{len(failures)} messages, {retries} retries, {len(hopeless)} dead letters"


# --- delay --------------------------------------------------------------------------------------------------------


def plan_delays(count: int, levels: int) -> dict[str, Any]:
    """The level of each message."""
    dice = _random("delays")
    chosen = [1 + number % levels for number in range(count)]
    dice.shuffle(chosen)
    return {"levels": chosen, "millis": {str(level): LEVEL_MS[level] for level in range(1, levels + 1)}}


def check_delays(plan: dict[str, Any], facts: Facts) -> str:
    """Every message once, none stored in its topic before it was due, none much later."""
    late = [millis for _, millis in facts["late"]]
    assert sorted(number for number, _ in facts["late"]) == list(range(len(plan["levels"])))
    assert min(late) >= 0, f"{-min(late)} ms early"
    assert max(late) <= LATE_MS_MAX
    return f"{len(late)} messages of levels 1-{max(plan['levels'])}: late by {min(late)} to {max(late)} ms"


# --- transactions -------------------------------------------------------------------------------------------------


def plan_transactions(count: int) -> dict[str, Any]:
    """The answers of each transaction."""
    dice = _random("transactions")
    return {"outcomes": dice.choices(OUTCOMES, weights=[8, 5, 4, 3, 2, 1], k=count)}


def check_transactions(plan: dict[str, Any], facts: Facts) -> str:
    """Exactly the committed messages, at once or after a check, are visible, once; each open one was checked."""
    outcomes = plan["outcomes"]
    assert facts["visible"] == [number for number, outcome in enumerate(outcomes) if outcome.endswith("c")]
    assert facts["asked about decided ones"] == 0
    asked = {int(number): times for number, times in facts["asked"].items()}
    assert sorted(asked) == [number for number, outcome in enumerate(outcomes) if outcome.startswith("u")]
    assert all(times >= len(outcomes[number]) - 1 for number, times in asked.items())
    counts = Counter(outcomes)
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    return f"{len(outcomes)} transactions ({told}), {len(facts['visible'])} visible, {sum(asked.values())} questions"


# --- filters ------------------------------------------------------------------------------------------------------


def plan_tags(count: int) -> dict[str, Any]:
    """The tag of each message, including two that a broker cannot distinguish, and none."""
    dice = _random("tags")
    tags = [dice.choice([*COLLIDING, "green", "中文", None]) for _ in range(count - 4)] + ["end"] * 4
    return {"messages": [{"TAGS": tag} if tag else {} for tag in tags], "groups": TAG_GROUPS}


def _wants_tag(expression: str, properties: Mapping[str, str]) -> bool:
    return expression == "*" or properties.get("TAGS") in expression.split(" || ")


# Written twice: for the broker, and as a Python predicate.
_SQL: dict[str, tuple[str, Callable[[Mapping[str, str]], bool]]] = {
    "number": ("n > 10", lambda have: "n" in have and int(have["n"]) > 10),
    "between": (
        "n BETWEEN 3 AND 7 OR TAGS = 'green'",
        lambda have: ("n" in have and 3 <= int(have["n"]) <= 7) or have.get("TAGS") == "green",
    ),
    "in": (
        "region IN ('eu', 'us') AND NOT (n <= 9)",
        lambda have: have.get("region") in {"eu", "us"} and int(have.get("n", 0)) > 9,
    ),
    "null": ("region IS NULL AND n IS NOT NULL", lambda have: "region" not in have and "n" in have),
    "never": ("region = 'mars'", lambda have: False),
}
SQL_GROUPS = {name: f"({text}) OR last = TRUE" for name, (text, _) in _SQL.items()}


def plan_sql(count: int) -> dict[str, Any]:
    """The properties of each message; some lack one or the other."""
    dice = _random("sql")
    messages: list[dict[str, str]] = []
    for _ in range(count):
        wish = {
            "n": dice.choice([None, str(dice.randrange(20))]),
            "region": dice.choice([None, "eu", "us", "asia"]),
            "TAGS": dice.choice([None, "green", "red"]),
        }
        messages.append({name: value for name, value in wish.items() if value is not None})
    for message in messages[-4:]:
        message["last"] = "true"
    return {"messages": messages, "groups": SQL_GROUPS}


def _check_filter(facts: Facts, plan: dict[str, Any], wants: Callable[[str, Mapping[str, str]], bool]) -> str:
    wanted = {
        group: [number for number, have in enumerate(plan["messages"]) if wants(group, have)]
        for group in plan["groups"]
    }
    assert facts["got"] == wanted
    told = ", ".join(f"{group} {len(numbers)}" for group, numbers in wanted.items())
    return f"{len(plan['messages'])} messages, groups got: {told}"


def check_tags(plan: dict[str, Any], facts: Facts) -> str:
    """Each group got its messages, once, and its offsets moved past the rest."""
    return _check_filter(facts, plan, lambda group, have: _wants_tag(plan["groups"][group], have))


def check_sql(plan: dict[str, Any], facts: Facts) -> str:
    """The same with SQL92."""
    return _check_filter(facts, plan, lambda group, have: "last" in have or _SQL[group][1](have))


# --- replay -------------------------------------------------------------------------------------------------------


def check_reset(plan: dict[str, Any], facts: Facts) -> str:
    """All messages once, and after the reset those after the time again."""
    half = plan["half"]
    assert facts["first"] == list(range(2 * half))
    assert facts["to"] == [half // 4] * 4
    assert facts["again"] == list(range(half, 2 * half))
    return f"{2 * half} messages, {half} of them again after the reset"


# --- requests -----------------------------------------------------------------------------------------------------


def check_requests(plan: dict[str, Any], facts: Facts) -> str:
    """Each request has its own reply."""
    count = plan["count"]
    assert facts["replies"] == [f"re q{number}" for number in range(count)]
    assert facts["answered"] == count
    return f"{count} requests, each with its reply"


PARTS: dict[str, Part] = {
    "order": Part("ordered", plan_order(2000), check_order),
    "retry": Part("retries", plan_retries(40, level=1), check_retries),
    "retry, delay of the broker": Part("retries", plan_retries(8, level=0, most=1), check_retries, is_whole=True),
    "delay, two levels": Part("delays", plan_delays(100, 2), check_delays),
    "delay": Part("delays", plan_delays(200, 4), check_delays, is_whole=True),
    "transactions": Part("transactions", plan_transactions(200), check_transactions),
    "tags": Part("tags", plan_tags(300), check_tags),
    "sql92": Part("sql", plan_sql(300), check_sql),
    # Java's client pauses for ten seconds when it is reset.
    "reset": Part("reset", {"half": 40}, check_reset, is_whole=True),
    "requests": Part("requests", {"count": 50}, check_requests),
}
