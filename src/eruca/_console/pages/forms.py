"""Forms: fields that are checked, and changes that are shown before they are made.

A handler of a change answers GET with its form, and POST with

    form = read_fields(visit, FIELDS)          # raises FormRefused, which the frame shows beside the form
    return await change(
        visit,
        action="topic.create",                 # a word of the audit log, and the key of the title: action.topic.create
        target=form["topic"],
        words=["topic", "create", form["topic"], "--queues", form["queues"]],
        deed=lambda dry_run: visit.admin.topics.create(form["topic"], queues=form["queues"], dry_run=dry_run),
        then=visit.url("topics", form["topic"]),
    )

The first POST runs the deed with `dry_run=True` and shows before and after with the command; the button there posts the
same fields again with the plan. Then the deed is run once, if it would still do the same, and noted in the audit log.
The API does both in one POST, or only the first with `dry_run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eruca._admin.plans import Comparison, Deed, PlanRefused
from eruca._console.pages.outcomes import Outcomes, read_outcomes
from eruca._console.pages.visit import Shown, Visit
from eruca.errors import ErucaError

_TEXT_CHARS_MAX = 10_000
# Fields of the flow itself, which are not those of the change.
_OWN_FIELDS = frozenset({"plan", "csrf", "confirm", "dry_run"})


class FormRefused(ErucaError):
    """Fields of a form are not valid; `errors` has what is wrong by the name of the field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in errors.items()))
        self.errors = dict(errors)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form: its name, the key of its label, and what is accepted.

    `kind`: text, area, number, choice, check, password or hidden. A field that is not required is None when it is
    empty.
    """

    name: str
    label: str
    kind: str = "text"
    default: Any = None
    required: bool = False
    low: int | None = None
    high: int | None = None
    choices: Sequence[str] = ()
    # Texts of the choices: `topics.kind` for `topics.kind.retry`; otherwise they are shown as they are.
    choice_texts: str = ""
    # The key of a sentence below the field.
    hint: str = ""
    chars_max: int = 255
    # Lines of an area.
    rows: int = 8
    # The name of a choice before it, and the choices that need this field: with others, the browser hides it.
    shown_for: tuple[str, tuple[str, ...]] | None = None


def read_fields(visit: Visit, fields: Sequence[Field]) -> dict[str, Any]:
    """Return the values of a form. Raises FormRefused."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for field in fields:
        text = visit.form.get(field.name, "")
        if not isinstance(text, str):
            errors[field.name] = visit.text("forms.no_file")
            continue
        try:
            values[field.name] = _read_field(visit, field, text.strip() if field.kind != "area" else text)
        except ValueError as error:
            errors[field.name] = str(error)
    if errors:
        raise FormRefused(errors)
    return values


def _read_field(visit: Visit, field: Field, text: str) -> Any:
    if field.kind == "check":
        return text in ("on", "true", "1", "yes")
    if not text:
        if field.required:
            raise ValueError(visit.text("forms.required"))
        return None if field.kind != "area" else ""
    if len(text) > (max(_TEXT_CHARS_MAX, field.chars_max) if field.kind == "area" else field.chars_max):
        raise ValueError(visit.text("forms.too_long"))
    if field.kind == "choice" and text not in field.choices:
        raise ValueError(visit.text("forms.choose", choices=", ".join(field.choices)))
    if field.kind != "number":
        return text
    digits = text.removeprefix("-")
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= 18):
        raise ValueError(visit.text("forms.number"))
    number = int(text)
    if (field.low is not None and number < field.low) or (field.high is not None and number > field.high):
        raise ValueError(visit.text("forms.range", low=field.low, high="∞" if field.high is None else field.high))
    return number


async def change(
    visit: Visit,
    *,
    action: str,
    target: str,
    words: Sequence[object],
    deed: Deed,
    then: str,
    back: str = "",
    is_dangerous: bool = False,
    is_same: Comparison | None = None,
    read: Callable[[Any], Outcomes] = read_outcomes,
    template: str = "changes/done.html",
    has_command: bool = True,
) -> Shown:
    """Show a change, or carry it out if it was shown. `is_dangerous`: the target's name has to be typed.

    `then` is where to go after the change, and `back` where to go without it, if that is another page.
    `is_same` compares the preview with a later one; `read` turns a result into rows if it is not of the usual types.
    `template` shows a result that has more than rows, such as a secret that is shown once.
    Without `has_command`, no command does the same; `words` still have to name everything that is changed.
    """
    same = visit.command(*words)
    command = same if has_command else ""
    plans, owner = visit.parts.plans, f"{visit.user.name} {visit.route.path} {action}"
    plan_id = str(visit.form.get("plan", ""))
    what = f"{owner}: {same}"
    if not plan_id:
        plan = await plans.make(what, target, command, deed, *([] if is_same is None else [is_same]))
        if not visit.is_api or visit.form.get("dry_run") in ("true", "on", "1"):
            return _show_plan(visit, plan.id, action, target, command, read(plan.preview), back or then, is_dangerous)
        plan_id, confirm = plan.id, target
    else:
        confirm = str(visit.form.get("confirm", "")) if is_dangerous else target
        # The form was posted by the same user, with the same fields: the command names all of them.
        if plans.find(plan_id).what != what:
            raise PlanRefused(f"plan {plan_id[:40]!r} is not for this change", hint="make a new plan")
        if confirm != target:
            plan = plans.find(plan_id)
            outcomes = read(plan.preview)
            return _show_plan(visit, plan.id, action, target, command, outcomes, back or then, is_dangerous, wrong=True)
    try:
        result = await plans.apply(plan_id, confirm)
    except BaseException as error:
        # Also when the console stops: parts of it may have been done.
        noted = visit.audit(action=action, target=target, command=command, outcome="failed", reason=_explain(error))
        await asyncio.shield(noted)
        raise
    finally:
        if visit.has_cluster:
            visit.cluster.recent.forget()
    outcomes = read(result)
    await visit.audit(
        action=action,
        target=target,
        command=command,
        before=outcomes.before,
        after=outcomes.after,
        outcome=outcomes.outcome,
    )
    return visit.show(
        template,
        {"action": action, "target": target, "command": command, "outcome": outcomes.outcome, "result": result},
        action=action,
        target=target,
        command=command,
        outcomes=outcomes,
        undo=[visit.command(*words) for words in visit.parts.list_undo(getattr(result, "undo", []))],
        then=then,
        result=result,
    )


def _show_plan(
    visit: Visit,
    plan: str,
    action: str,
    target: str,
    command: str,
    outcomes: Outcomes,
    then: str,
    is_dangerous: bool,
    *,
    wrong: bool = False,
) -> Shown:
    fields = [(name, text) for name, text in visit.form.multi_items() if name not in _OWN_FIELDS]
    return visit.show(
        "changes/preview.html",
        {"action": action, "target": target, "command": command, "dry_run": True, "preview": outcomes.rows},
        status=400 if wrong else 200,
        plan=plan,
        action=action,
        target=target,
        command=command,
        outcomes=outcomes,
        then=then,
        is_dangerous=is_dangerous,
        is_wrong=wrong,
        fields=[(name, text) for name, text in fields if isinstance(text, str)],
    )


def _explain(error: BaseException) -> str:
    return str(error) if isinstance(error, ErucaError) else f"it was interrupted: {type(error).__name__}"
