"""Dead letters of a running broker: listed, shown, sent again with an outcome for each, taken out."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from pathlib import Path

import pytest

from eruca._admin import connection
from eruca._admin.deadletters import ALL, GroupLetters, Journal, Wanted, write_files
from eruca._admin.storedmessages import StoredMessage, describe_record, make_row
from eruca._client.pull.queuereading import QueueReader
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX
from eruca._wire.properties import RETRY_TOPIC, UNIQ_KEY
from eruca._wire.record import Record
from eruca.admin import Admin
from eruca.errors import ClientClosed, ConfigError, NetError, NoRoute
from tests.integration.admin.staging import bury, read_bodies


async def list_letters(admin: Admin, group: str, wanted: Wanted = ALL) -> list[StoredMessage]:
    return [letter async for letter in admin.dead_letters.read(group, wanted)]


async def test_dead_letters_are_counted_and_described(admin: Admin) -> None:
    ids = await bury(admin, "billing", "orders", 3)
    letters = await list_letters(admin, "billing")
    listed = GroupLetters(group="billing", count=3, last_at=letters[-1].stored_at)
    assert (await admin.dead_letters.list()).items == [listed]
    row = letters[0]
    assert [letter.message_id for letter in letters] == ids
    assert (row.topic, row.tags, row.keys, row.tries) == ("orders", "tag0", ["key0"], 1)
    assert row.properties["number"] == "0"
    assert row.stored_in == DLQ_PREFIX + "billing"


async def test_conditions_choose_among_them(admin: Admin) -> None:
    ids = await bury(admin, "billing", "orders", 2)
    ids += await bury(admin, "billing", "invoices", 2)
    letters = await list_letters(admin, "billing")

    async def choose(**conditions: object) -> list[str]:
        return [letter.message_id for letter in await list_letters(admin, "billing", Wanted(**conditions))]  # type: ignore[arg-type]

    assert await choose(topic="invoices") == ids[2:]
    assert await choose(key="key1") == [ids[1], ids[3]]
    assert await choose(ids=(letters[1].offset_id, letters[2].origin_id, ids[3])) == ids[1:]
    assert await choose(limit=3) == ids[:3]
    first, last, tick = letters[0].stored_at, letters[-1].stored_at, timedelta(milliseconds=1)
    assert first is not None and last is not None
    assert await choose(since=last + tick) == await choose(until=first - tick) == []
    assert await choose(since=first, until=last) == ids
    with pytest.raises(ConfigError, match=r"since=.*has no time zone"):
        await choose(since=first.replace(tzinfo=None))


async def test_one_is_found_by_each_of_its_ids(admin: Admin) -> None:
    await bury(admin, "billing", "orders", 2)
    letter = (await list_letters(admin, "billing"))[1]
    for name in (letter.message_id, letter.offset_id, letter.origin_id):
        assert (await admin.dead_letters.find("billing", name)).offset == letter.offset
    with pytest.raises(ConfigError, match="dlq list billing"):
        await admin.dead_letters.find("billing", "nothing")


async def test_a_group_that_never_had_any_has_none(admin: Admin) -> None:
    assert not (await admin.groups.create("quiet")).failed
    assert await list_letters(admin, "quiet") == []
    assert await admin.dead_letters.count("quiet") == 0


async def test_a_group_that_nobody_knows_is_named(admin: Admin) -> None:
    with pytest.raises(NoRoute, match="group nobody has no dead letters"):
        await list_letters(admin, "nobody")


async def test_resend_keeps_what_the_sender_wrote(admin: Admin) -> None:
    ids = await bury(admin, "billing", "orders", 3)
    rows = [row async for row in admin.dead_letters.resend("billing")]
    assert [(row.message_id, row.topic, row.outcome) for row in rows] == [(name, "orders", "sent") for name in ids]
    again = await admin.connection.reader.view(rows[1].offset_id)
    assert (again.topic, again.body, again.tags, again.keys) == ("orders", b"body 1", "tag1", ["key1"])
    assert again.properties == {"number": "1"}
    assert again.all_properties[UNIQ_KEY] == ids[1]
    assert again.record.reconsume_times == 0 and RETRY_TOPIC not in again.all_properties
    assert sorted(await read_bodies(admin, "orders")) == sorted(2 * [b"body 0", b"body 1", b"body 2"])


async def test_resend_to_the_group_alone(admin: Admin) -> None:
    (name,) = await bury(admin, "billing", "orders", 1)
    # A consumer of the group makes it; here nobody consumes.
    await admin.connection.routes.get("orders")
    rows = [row async for row in admin.dead_letters.resend("billing", only_group=True)]
    assert [(row.message_id, row.topic, row.outcome) for row in rows] == [(name, RETRY_PREFIX + "billing", "sent")]
    again = await admin.connection.reader.view(rows[0].offset_id)
    assert again.all_properties[RETRY_TOPIC] == "orders"
    assert again.topic == "orders" and again.record.topic == RETRY_PREFIX + "billing"
    assert await read_bodies(admin, "orders") == [b"body 0"]


async def test_a_failure_does_not_keep_others_back_and_a_journal_takes_it_up(admin: Admin, tmp_path: Path) -> None:
    await bury(admin, "billing", "orders", 3)
    journal = tmp_path / "journal.jsonl"
    first = [row async for row in admin.dead_letters.resend("billing", topic="nowhere", journal=Journal(journal))]
    assert [row.outcome for row in first] == ["failed"] * 3
    assert "nowhere has no route" in first[0].reason
    wanted = Wanted(limit=2)
    second = [row async for row in admin.dead_letters.resend("billing", wanted, journal=Journal(journal))]
    assert [row.outcome for row in second] == ["sent"] * 2
    # What a kill in the middle of a write leaves behind.
    await asyncio.to_thread(lambda: journal.write_text(journal.read_text() + '{"letter": "7F00'))
    third = [row async for row in admin.dead_letters.resend("billing", journal=Journal(journal))]
    assert [row.outcome for row in third] == ["skipped", "skipped", "sent"]
    fourth = [row async for row in admin.dead_letters.resend("billing", journal=Journal(journal))]
    assert [row.outcome for row in fourth] == ["skipped"] * 3
    assert len(await read_bodies(admin, "orders")) == 6


async def test_a_dry_run_sends_nothing(admin: Admin) -> None:
    await bury(admin, "billing", "orders", 2)
    rows = [row async for row in admin.dead_letters.resend("billing", dry_run=True)]
    assert [(row.topic, row.outcome) for row in rows] == [("orders", "planned")] * 2
    assert len(await read_bodies(admin, "orders")) == 2


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match="line 1: not the journal"):
        Journal(path).open()


async def test_export_has_the_body(admin: Admin, tmp_path: Path) -> None:
    (name,) = await bury(admin, "billing", "orders", 1)
    (letter,) = await list_letters(admin, "billing")
    row = make_row(letter)
    assert base64.b64decode(row["body_base64"]) == b"body 0"
    assert (row["message_id"], row["body_is_packed"]) == (name, False)


async def test_an_admin_that_is_not_started_says_so() -> None:
    with pytest.raises(ClientClosed, match="async with Admin"):
        await Admin("127.0.0.1:1").dead_letters.list()


def test_files_are_body_and_the_rest(tmp_path: Path, letter: StoredMessage) -> None:
    write_files(tmp_path / "out", letter)
    assert (tmp_path / "out" / f"{letter.offset_id}.body").read_bytes() == b"body"
    facts = json.loads((tmp_path / "out" / f"{letter.offset_id}.json").read_text())
    assert facts["stored_in"] == "%DLQ%billing" and "body_base64" not in facts


@pytest.fixture
def letter() -> StoredMessage:
    record = Record("%DLQ%billing", body=b"body", properties=b"UNIQ_KEY\x01id\x02RETRY_TOPIC\x01orders")
    return describe_record(record, "broker-a")


async def test_half_of_a_queue_is_not_taken_for_all_of_it(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    await bury(admin, "billing", "orders", 2)

    async def find_end(self: QueueReader, queue: MessageQueue) -> int:
        return 3

    monkeypatch.setattr(QueueReader, "find_end", find_end)
    monkeypatch.setattr(connection, "_SILENT_PAUSE_S", 0.0)
    found = []
    expected = "no messages of %DLQ%billing, queue 0, from offset 2, although the queue ends at 3"
    with pytest.raises(NetError, match=expected):
        async for letter in admin.dead_letters.read("billing"):
            found.append(letter.body)
    assert found == [b"body 0", b"body 1"]
