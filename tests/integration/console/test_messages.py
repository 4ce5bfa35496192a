"""The pages about messages over HTTP, against a broker: searching, sending, importing, deciding, and what is hidden."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from eruca._console.identity.masking import MaskRule
from eruca._console.identity.rights import Grant, Kind, Role
from eruca._console.messages import searching
from eruca._testing.embedded import EmbeddedBroker
from eruca.admin import Admin
from tests.admin.stage import poll
from tests.integration.admin.staging import bury, prepare
from tests.integration.broker.conftest import allow_new_files
from tests.security.consoles import CLUSTER, Browser, Running, run_console

__all__ = ["allow_new_files"]

BROKER = "embedded"
SCRIPT = "<script>alert(1)</script>"
HANDLER = '"><img src=x onerror=alert(1)>'
_PLAN = re.compile(r'name="plan" value="([0-9a-f]+)"')


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    # Without `hurry`: delayed messages and halves are to wait.
    with EmbeddedBroker(tmp_path_factory.mktemp("home")) as it:
        yield it


@pytest.fixture
async def admin(broker: EmbeddedBroker) -> AsyncIterator[Admin]:
    async with Admin(broker.nameserver) as admin:
        yield admin


@pytest.fixture
async def running(tmp_path: Path, broker: EmbeddedBroker) -> AsyncIterator[Running]:
    async with run_console(tmp_path / "console", nameserver=broker.nameserver) as it:
        yield it


@pytest.fixture
async def operator(running: Running) -> Browser:
    return await running.log_in("olga", Role.OPERATOR)


@pytest.fixture
async def topic(request: pytest.FixtureRequest, admin: Admin) -> str:
    """A topic of this test, with one queue."""
    name = re.sub(r"\W+", "-", request.node.name)[:60].strip("-")
    await admin.topics.create(name, queues=1)
    return name


def page(*parts: str) -> str:
    """The address of a page of the cluster."""
    return "/".join(["", "c", CLUSTER, *(quote(part, safe="") for part in parts)])


def api(*parts: str) -> str:
    """The same in the API."""
    return f"/api{page(*parts)}"


async def send(admin: Admin, topic: str, *bodies: bytes, **how: Any) -> list[str]:
    """Send messages; returns their ids when they can be found."""
    receipts = [await admin.messages.send(topic, body, **how) for body in bodies]
    ids = [receipt.message_id for receipt in receipts if receipt is not None]
    for name in ids:
        await poll(lambda name=name: admin.messages.find(topic, name), lambda found: bool(found.items))  # type: ignore[misc]
    return ids


async def confirm(browser: Browser, path: str, form: dict[str, str], **more: Any) -> httpx.Response:
    """Post a form, and then the plan that is shown."""
    shown = await browser.post(path, form, **more)
    assert shown.status_code == 200, shown.text
    plan = _PLAN.search(shown.text)
    assert plan is not None, shown.text
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', shown.text))
    named = {name: html.unescape(value) for name, value in fields.items() if name != "csrf"}
    done = await browser.post(path, {**named, "confirm": form.get("confirm", "")})
    assert done.status_code == 200, done.text
    return done


async def search(browser: Browser, topic: str, **query: object) -> dict[str, Any]:
    answer = await browser.get(api("messages"), params={"topic": topic, **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


# -- searching ---------------------------------------------------------------------------------------------------------


async def test_messages_are_found_in_every_way(operator: Browser, admin: Admin, topic: str) -> None:
    ids = await send(admin, topic, *(b'{"n": %d}' % number for number in range(5)), keys=["order-7"], tags="paid")

    async def numbers(**query: object) -> list[int]:
        return [json.loads(row["body"])["n"] for row in (await search(operator, topic, **query))["items"]]

    assert await numbers() == [4, 3, 2, 1, 0]
    assert await numbers(mode="oldest") == [0, 1, 2, 3, 4]
    assert sorted(await numbers(mode="key", name="order-7")) == [0, 1, 2, 3, 4]
    assert await numbers(mode="id", name=ids[3]) == [3]
    assert await numbers(mode="offset", queue=f"{BROKER}:0", offset=3) == [3, 4]
    assert await numbers(filter="body.n > 1 and body.n <> 3 and tags = 'paid'") == [4, 2]
    assert await numbers(mode="key", name="order-7", filter="body.n = 2") == [2]
    assert await numbers(since="-1h") == [4, 3, 2, 1, 0] and await numbers(until="2020-01-01") == []
    row = (await search(operator, topic, mode="id", name=ids[0]))["items"][0]
    (stored,) = (await admin.messages.find(topic, ids[0])).items
    assert row == json.loads(json.dumps(row)) and row["offset_id"] == stored.offset_id
    exported = await operator.get(page("messages"), params={"topic": topic, "format": "jsonl", "mode": "oldest"})
    assert [json.loads(line)["message_id"] for line in exported.text.splitlines()] == ids
    assert exported.headers["content-disposition"].startswith("attachment")


async def test_a_search_continues_where_it_was_cut(
    operator: Browser, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(admin, topic, *(b"%d" % number for number in range(7)))
    monkeypatch.setattr(searching.Bounds, "__init__", _make_small(searching.Bounds.__init__))
    bodies: list[str] = []
    found = await search(operator, topic, mode="oldest")
    while True:
        bodies += [row["body"] for row in found["items"]]
        if not found["from"]:
            break
        assert found["cut"] and found["stopped"] == "messages" and found["scanned"] == 3
        found = await search(operator, topic, mode="oldest", **{"from": found["from"]})
    assert bodies == [str(number) for number in range(7)] and not found["cut"]
    # The page asks for the next step itself, and can be stopped.
    first = await operator.get(page("messages"), params={"topic": topic, "mode": "oldest"})
    (following,) = re.findall(r'hx-get="([^"]+)" hx-trigger="load"', first.text)
    step = await operator.get(html.unescape(following), headers={"hx-request": "true"})
    assert "6 messages read, 6 found" in step.text and step.text.lstrip().startswith("<tbody>")
    (stop,) = re.findall(r'hx-get="([^"]+stop=1[^"]*)"', step.text)
    stopped = await operator.get(html.unescape(stop), headers={"hx-request": "true"})
    assert (
        "stopped" in stopped.text and 'hx-trigger="load"' not in stopped.text and "Continue from here" in stopped.text
    )


def _make_small(make: Any) -> Any:
    def make_small(self: Any, **how: Any) -> None:
        make(self, **{"messages": 3, **how})

    return make_small


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"filter": "body.n >"}, "the filter is wrong at character 9"),
        ({"mode": "offset"}, "give a queue"),
        ({"mode": "key"}, "give one"),
        ({"mode": "none"}, "expected one of"),
        ({"queue": "../../x"}, "is not a queue"),
        ({"since": "yesterday"}, "'yesterday' is not a time"),
        ({"from": "x"}, "place to continue from"),
        ({"topic": "a/b"}, "a/b"),
        ({"topic": "missing-topic"}, "missing-topic"),
    ],
)
async def test_mistakes_are_explained(operator: Browser, topic: str, query: dict[str, str], said: str) -> None:
    answer = await operator.get(page("messages"), params={"topic": topic, **query})
    assert answer.status_code in (400, 404) and said in html.unescape(answer.text)


async def test_saved_filters_belong_to_their_user(running: Running, operator: Browser, topic: str) -> None:
    other = await running.log_in("otto", Role.VIEWER)
    form = {"name": "large ones", "filter": "body.n > 100", "topic": topic}
    assert (await operator.post(page("messages", "filters"), form)).status_code == 303
    assert "large ones" in (await operator.get(page("messages"), params={"topic": topic})).text
    assert "large ones" not in (await other.get(page("messages"), params={"topic": topic})).text
    refused = await operator.post(page("messages", "filters"), {"name": "bad", "filter": "body.n >"})
    assert refused.status_code == 400
    await operator.post(page("messages", "filters"), {"delete": "large ones", "topic": topic})
    assert "large ones" not in (await operator.get(page("messages"), params={"topic": topic})).text


# -- sending -----------------------------------------------------------------------------------------------------------


async def test_a_message_is_previewed_sent_and_copied(
    running: Running, operator: Browser, admin: Admin, topic: str
) -> None:
    form = {
        **{"topic": topic, "body": "one\r\ntwo", "encoding": "text", "tags": "new", "keys": "a b"},
        **{"properties": "region=eu", "delay": "", "shard": "customer-7", "queue": ""},
    }
    previewed = await operator.post(page("messages", "send"), form)
    assert previewed.status_code == 200 and (await search(operator, topic))["items"] == []
    done = await confirm(operator, page("messages", "send"), form)
    assert "Done." in done.text
    (row,) = (await search(operator, topic))["items"]
    assert (row["body"], row["tags"], row["keys"], row["properties"]["region"]) == ("one\ntwo", "new", ["a", "b"], "eu")
    copy = {"source": topic, "broker": row["broker"], "number": "0", "offset": "0"}
    filled = await operator.get(page("messages", "send"), params={**copy, "topic": topic})
    assert "one\ntwo</textarea>" in filled.text and "region=eu</textarea>" in filled.text
    await confirm(operator, page("messages", "send"), {**form, **copy, "body": "edited"})
    assert [each["body"] for each in (await search(operator, topic))["items"]] == ["edited", "one\ntwo"]
    rows = await running.console.identity.audit.list(_everything(), limit=10)
    assert [(each.action, each.target, each.outcome, each.user) for each in rows[:2]] == [
        ("message.resend", topic, "done", "olga"),
        ("message.send", topic, "done", "olga"),
    ]
    assert rows[1].command.startswith(f"eruca message import {topic} message-")


def _everything() -> Any:
    from eruca._console.identity.audit import AuditFilter

    return AuditFilter()


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("body", "", "required"),
        ("delay", "7s", "no such delay level"),
        ("delay", "soon", "not a number followed by"),
        ("properties", "a", "expected NAME=VALUE"),
        ("properties", "UNIQ_KEY=1", "the name is reserved"),
        ("queue", "0", "Expected BROKER:N"),
        ("topic", "no-such-topic", "no-such-topic"),
    ],
)
async def test_a_wrong_form_is_shown_again(operator: Browser, topic: str, field: str, text: str, said: str) -> None:
    form = {"topic": topic, "body": "x", "encoding": "text", field: text}
    answer = await operator.post(page("messages", "send"), form)
    assert said in html.unescape(answer.text), re.findall(r"<(?:p|strong)[^>]*>([^<]+)", answer.text)
    assert answer.status_code == (200 if field == "topic" else 400)


async def test_a_file_is_imported_with_an_outcome_for_each_line(operator: Browser, topic: str) -> None:
    data = b'{"body": {"n": 1}, "keys": "k"}\n\n{"tags": "x"}\n{"body_base64": "AP8="}\n'
    files = {"file": ("../orders.jsonl", data, "application/x-ndjson")}
    done = await confirm(operator, page("messages", "import"), {"topic": topic}, files=files)
    assert "neither body nor body_base64" in done.text and "orders.jsonl" in done.text and "../" not in done.text
    rows = (await search(operator, topic, mode="oldest"))["items"]
    assert [row["body_base64"] for row in rows] == ["eyJuIjoxfQ==", "AP8="]
    for wrong, said in (
        (b"", "required"),
        (b"x" * 1_048_577, "larger than"),
        (b'{"body":"x"}\n' * 1001, "1000 messages"),
    ):
        answer = await operator.post(
            page("messages", "import"), {"topic": topic}, files={"file": ("a", wrong, "text/plain")}
        )
        assert answer.status_code == 400 and said in answer.text


# -- dead letters, delayed messages, transactions ----------------------------------------------------------------------


async def test_dead_letters_are_sent_again(operator: Browser, admin: Admin, topic: str) -> None:
    group = f"{topic}-billing"
    await bury(admin, group, topic, 3)
    groups = (await operator.get(api("deadletters"))).json()["items"]
    assert (group, 3) in [(row["group"], row["count"]) for row in groups]
    letters = (await operator.get(api("deadletters", group))).json()["items"]
    assert len(letters) == 3 and {row["topic"] for row in letters} == {topic}
    chosen = [row["id"] for row in letters[:2]]
    form: dict[str, Any] = {"selected": chosen, "target": "origin", "dry_run": "true"}
    planned = (await operator.post(api("deadletters", group, "resend"), form)).json()
    assert [row["outcome"] for row in planned["preview"]] == ["planned", "planned"]
    assert len((await search(operator, topic))["items"]) == 3
    form.pop("dry_run")
    done = (await operator.post(api("deadletters", group, "resend"), form)).json()
    assert done["outcome"] == "done" and [row["outcome"] for row in done["result"]] == ["sent", "sent"]
    assert len((await search(operator, topic))["items"]) == 5
    exported = await operator.get(page("deadletters", group), params={"format": "jsonl"})
    assert len(exported.text.splitlines()) == 3
    for wrong in ({"target": "origin"}, {"selected": chosen, "target": "topic"}):
        assert (await operator.post(api("deadletters", group, "resend"), wrong)).status_code == 400  # type: ignore[arg-type]


async def test_a_delayed_message_is_cancelled(operator: Browser, admin: Admin, topic: str) -> None:
    receipt = await admin.messages.send(topic, b"later", timer=timedelta(hours=3))
    await admin.messages.send(topic, b"fixed", delay=timedelta(hours=2))
    assert receipt is not None

    async def list_waiting() -> dict[str, int]:
        rows: list[dict[str, Any]] = (await operator.get(api("delayed"), params={"topic": topic})).json()["items"]
        return {row["message_id"]: row["level"] for row in rows}

    waiting = await poll(list_waiting, lambda found: len(found) == 2)
    assert sorted(waiting.values()) == [0, 18]
    await confirm(operator, page("delayed", topic, receipt.message_id, "cancel"), {})
    assert list((await list_waiting()).values()) == [18]
    unknown = await operator.post(page("delayed", topic, "7F00000100000000000000000000FFFF", "cancel"))
    assert "no message with this id waits" in unknown.text


async def test_a_transaction_is_discarded(operator: Browser, admin: Admin, topic: str) -> None:
    name = "7F000001000026A20000000000000007"
    await prepare(admin, topic, name)
    shown = await operator.get(page("transactions", topic, name))
    assert shown.status_code == 200 and f"half {name}" in shown.text
    assert (await operator.get(page("transactions", "other", name))).status_code == 404
    unconfirmed = await operator.post(page("transactions", topic, name, "discard"))
    assert "to confirm" in unconfirmed.text
    await confirm(operator, page("transactions", topic, name, "discard"), {"confirm": name})
    listed = (await operator.get(api("transactions"), params={"state": "all"})).json()["items"]
    assert [row["state"] for row in listed if row["message_id"] == name] == ["rolled back"]


async def test_the_steps_of_a_trace_are_exported(operator: Browser, admin: Admin, topic: str) -> None:
    await send(admin, topic, b"traced", keys=["k"])
    for table, column in (("events", "kind"), ("tracks", "group")):
        query = {"topic": topic, "name": "k", "table": table}
        answer = await operator.get(page("traces"), params={**query, "format": "csv"})
        assert answer.headers["content-type"].startswith("text/csv"), table
        assert column in answer.text.splitlines()[0].split(",")
        rows = (await operator.get(page("traces"), params={**query, "format": "json"})).json()["items"]
        assert [row["kind"] for row in rows] == ["produced", "stored"] if table == "events" else rows == []


# -- what is hidden ----------------------------------------------------------------------------------------------------


async def test_what_others_wrote_is_shown_as_text(operator: Browser, admin: Admin, topic: str) -> None:
    """Neither a body nor a tag, key, property, filter or name in an address becomes a part of a page."""
    how: Any = {"tags": HANDLER.replace("|", ""), "keys": ["<b>k</b>"], "properties": {"<i>p</i>": SCRIPT}}
    await send(admin, topic, SCRIPT.encode(), json.dumps({"a": SCRIPT}).encode(), **how)
    await bury(admin, f"{topic}-g", topic, 1)
    await operator.post(page("messages", "filters"), {"name": SCRIPT, "filter": f"body contains '{SCRIPT}'"})
    addresses = [
        (page("messages"), {"topic": topic}),
        (page("messages"), {"topic": topic, "filter": SCRIPT, "name": HANDLER, "queue": HANDLER}),
        (page("messages"), {"topic": HANDLER}),
        (page("messages", topic, BROKER, "0", "0"), {}),
        (page("messages", topic, BROKER, "0", "1"), {"format": HANDLER}),
        (page("messages", "send"), {"source": topic, "broker": BROKER, "number": "0", "offset": "0"}),
        (page("tail"), {"topic": HANDLER, "filter": HANDLER}),
        (page("traces"), {"topic": topic, "name": "<b>k</b>"}),
        (page("deadletters", f"{topic}-g"), {"key": HANDLER}),
        (page("delayed"), {"topic": HANDLER}),
        (page("transactions", HANDLER, HANDLER), {}),
    ]
    for path, query in addresses:
        text = (await operator.get(path, params=query)).text
        for part in (SCRIPT, "<img", "<b>k", "<i>p", 'onerror=alert(1)>"'):
            assert part not in text, (path, query, part)
    csv = (await operator.get(page("messages"), params={"topic": topic, "format": "csv"})).text
    assert SCRIPT in csv  # a file, not a page


async def test_hidden_fields_stay_hidden(running: Running, admin: Admin, topic: str) -> None:
    await running.console.identity.masking.add(MaskRule(topic, ("card.number", "property:token"), Role.OPERATOR))
    await send(admin, topic, b'{"card": {"number": "4711", "owner": "ann"}}', properties={"token": "t-4711"})
    viewer, operator = await running.log_in("vera", Role.VIEWER), await running.log_in("olga", Role.OPERATOR)
    place = page("messages", topic, BROKER, "0", "0")
    for path, query in (
        (page("messages"), {"topic": topic}),
        (page("messages"), {"topic": topic, "format": "jsonl"}),
        (page("messages"), {"topic": topic, "format": "csv"}),
        (api("messages"), {"topic": topic}),
        (place, {}),
        (place, {"format": "text"}),
        (place, {"format": "hex"}),
    ):
        seen, full = await viewer.get(path, params=query), await operator.get(path, params=query)
        assert seen.status_code == 200 and "4711" not in seen.text and "NDcxM" not in seen.text, (path, query)
        assert "4711" in full.text or query.get("format") == "hex", (path, query)
    for expression in ("body.card.number = '4711'", "body contains '4711'", "properties.token like 't-%'"):
        assert (await search(viewer, topic, filter=expression))["items"] == []
        assert len((await search(operator, topic, filter=expression))["items"]) == 1
    assert (await viewer.get(place, params={"download": "1"})).status_code == 403
    assert (await operator.get(place, params={"download": "1"})).content.startswith(b'{"card"')


async def test_an_operator_from_whom_fields_are_hidden_cannot_copy(running: Running, admin: Admin, topic: str) -> None:
    await running.console.identity.masking.add(MaskRule("", ("card",), Role.ADMIN))
    await send(admin, topic, b'{"card": 4711}')
    await bury(admin, f"{topic}-g", topic, 1)
    operator = await running.log_in("olga", Role.OPERATOR)
    copy = {"source": topic, "broker": BROKER, "number": "0", "offset": "0", "topic": topic}
    assert (await operator.get(page("messages", "send"), params=copy)).status_code == 403
    (letter,) = (await operator.get(api("deadletters", f"{topic}-g"))).json()["items"]
    form = {"selected": letter["id"], "target": "topic", "to_topic": topic}
    assert (await operator.post(api("deadletters", f"{topic}-g", "resend"), form)).status_code == 403
    # To the same group as it is: it is hidden there too.
    form["target"] = "group"
    assert (await operator.post(api("deadletters", f"{topic}-g", "resend"), form)).json()["outcome"] == "done"


async def test_rights_by_prefix_hold_for_every_list_and_change(running: Running, admin: Admin, topic: str) -> None:
    hidden = f"hidden-{topic}"
    await admin.topics.create(hidden, queues=1)
    for each in (topic, hidden):
        await send(admin, each, b"x")
        await admin.messages.send(each, b"later", timer=timedelta(hours=3))
        await bury(admin, f"{each}-g", each, 1)
        await prepare(admin, each, f"7F00000100{each.encode().hex()[:22]}")
    grants = [
        Grant(Kind.TOPIC, "", Role.NONE),
        Grant(Kind.GROUP, "", Role.NONE),
        Grant(Kind.TOPIC, topic, Role.OPERATOR),
        Grant(Kind.GROUP, topic, Role.VIEWER),
    ]
    user = await running.log_in("rita", Role.VIEWER, grants)
    for path in ("deadletters", "delayed", "transactions"):
        text = (await user.get(api(path))).text
        assert topic in text and hidden not in text, path
    for path, query in (
        (page("messages"), {"topic": hidden}),
        (page("messages", "more"), {"topic": hidden}),
        (page("messages", hidden, BROKER, "0", "0"), {}),
        (page("messages", "send"), {"topic": hidden}),
        (page("messages", "send"), {"topic": topic, "source": hidden}),
        (page("tail"), {"topic": hidden}),
        (page("tail", "events"), {"topic": hidden}),
        (page("traces"), {"topic": hidden, "name": "x"}),
        (page("deadletters", f"{hidden}-g"), {}),
        (page("messages", f"%DLQ%{hidden}-g", BROKER, "0", "0"), {}),
        (page("messages"), {"topic": "SCHEDULE_TOPIC_XXXX"}),
        (page("messages"), {"topic": "rmq_sys_wheel_timer"}),
        (page("messages"), {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}),
    ):
        assert (await user.get(path, params=query)).status_code == 403, (path, query)
    assert (await user.get(page("messages"), params={"topic": topic})).status_code == 200
    for path, form in (
        (page("messages", "send"), {"topic": hidden, "body": "x", "encoding": "text"}),
        (page("delayed", hidden, "7F", "cancel"), {}),
        (page("transactions", hidden, "7F", "discard"), {}),
        (page("deadletters", f"{topic}-g", "resend"), {"selected": "x", "target": "group"}),
    ):
        assert (await user.post(path, form)).status_code == 403, path
    other = await user.post(page("delayed", topic, "7F00000100000000000000000000FFFF", "cancel"))
    assert other.status_code == 200  # allowed; there is no such message


async def test_a_live_tail_sends_what_arrives(operator: Browser, admin: Admin, topic: str) -> None:
    await send(admin, topic, b"early", b"<early>")
    query = {"topic": topic, "filter": "not body contains 'quiet'"}
    seen: list[str] = []
    async with operator.client.stream("GET", page("tail", "events"), params=query) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        async for line in stream.aiter_lines():
            seen += re.findall(r'<td class="body"><code>([^<]*)</code>', line)
            if seen == ["early", "&lt;early&gt;"]:
                seen.append("-")
                await send(admin, topic, b"quiet", b"late")
            if seen[-1:] == ["late"]:
                break
    assert seen == ["early", "&lt;early&gt;", "-", "late"]
    wrong = await operator.get(page("tail", "events"), params={"topic": topic, "filter": "x"})
    assert wrong.status_code == 400


async def test_a_live_tail_shows_all_of_the_first_messages(operator: Browser, admin: Admin) -> None:
    """Twelve queues have more of them than may arrive in a second."""
    await admin.topics.create("tail-of-many-queues", queues=12)
    for number in range(60):
        await admin.messages.send("tail-of-many-queues", b"%d" % number, broker="embedded", queue=number % 12)
    rows = 0
    counts: list[str] = []
    async with operator.client.stream("GET", page("tail", "events"), params={"topic": "tail-of-many-queues"}) as stream:
        async for line in stream.aiter_lines():
            rows += line.count('<td class="body">')
            counts += re.findall(r'<span class="warning">([^<]*)', line)
            if rows == 60 or counts:
                break
    assert (rows, counts) == (60, [])
