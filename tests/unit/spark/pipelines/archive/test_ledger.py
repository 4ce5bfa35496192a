"""The ledger of an archive: one change at a time, whole or not at all, and what a place of files can do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eruca._spark.pipelines.archive.ledger import Contents, Entry, Ledger
from eruca._spark.pipelines.directories import Directory
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError

QUEUE = MessageQueue("b", 0, "t")


def make_entry(generation: int, root: Path, *files: str, offset: int = 0, removes: tuple[str, ...] = ()) -> Entry:
    """An entry with files that a run has written."""
    run = f"run-{generation}"
    for name in files:
        path = root / "_eruca" / "staging" / run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return Entry(
        generation=generation,
        kind="archive",
        run=run,
        contents=Contents().advance({QUEUE: offset}),
        moves=[(f"_eruca/staging/{run}/{name}", f"messages/{name}") for name in files],
        removes=list(removes),
    )


def list_messages(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "messages").rglob("*") if path.is_file())


def test_an_entry_puts_files_in_place(tmp_path: Path) -> None:
    ledger = Ledger(Directory(str(tmp_path)))
    assert ledger.read() is ledger.recover() is ledger.find_unfinished() is None
    ledger.commit(make_entry(1, tmp_path, "a", "b", offset=5))
    last = ledger.read()
    assert last is not None
    assert (last.generation, last.contents.read_offsets()) == (1, {QUEUE: 5})
    assert list_messages(tmp_path) == ["a", "b"]
    assert not (tmp_path / "_eruca" / "staging" / "run-1").exists()
    ledger.commit(make_entry(2, tmp_path, "c", removes=("messages/a", "messages/never")))
    assert list_messages(tmp_path) == ["b", "c"]


def test_what_was_begun_is_finished_however_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Directory(str(tmp_path))
    ledger = Ledger(place)
    entry = make_entry(1, tmp_path, "a", "b", "c")
    move, moved = Directory.move, 0

    def die_at_third(self: Directory, source: str, target: str) -> None:
        nonlocal moved
        moved += 1
        if moved == 3:
            raise OSError("as wanted")
        move(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "move", die_at_third)
        with pytest.raises(OSError, match="as wanted"):
            ledger.commit(entry)
    assert (list_messages(tmp_path), ledger.read()) == (["a", "b"], None)
    unfinished = ledger.find_unfinished()
    assert unfinished is not None and unfinished.generation == 1
    # Nobody can put another one in its place.
    with pytest.raises(ConfigError, match="another run"):
        ledger.commit(make_entry(1, tmp_path, "d"))
    assert ledger.recover() == entry
    assert ledger.recover() == entry
    assert list_messages(tmp_path) == ["a", "b", "c"]


def test_only_one_of_two_runs_can_change_an_archive(tmp_path: Path) -> None:
    ledger = Ledger(Directory(str(tmp_path)))
    ledger.commit(make_entry(1, tmp_path, "a"))
    for generation in (1, 3):
        with pytest.raises(ConfigError, match="another run"):
            ledger.commit(make_entry(generation, tmp_path, f"x{generation}"))
    assert list_messages(tmp_path) == ["a"]
    assert Directory(str(tmp_path)).create("once", b"1")
    assert not Directory(str(tmp_path)).create("once", b"2")
    assert (tmp_path / "once").read_bytes() == b"1"


def test_old_entries_go_away(tmp_path: Path) -> None:
    ledger = Ledger(Directory(str(tmp_path)))
    for generation in range(1, 104):
        ledger.commit(make_entry(generation, tmp_path))
    names = sorted(path.name for path in (tmp_path / "_eruca" / "ledger").iterdir())
    assert (len(names), names[0], names[-1]) == (100, "00000004.json", "00000103.json")
    assert not list((tmp_path / "_eruca" / "ledger").glob(".*"))


@pytest.mark.parametrize("name", ["_eruca/done.json", "_eruca/ledger/00000001.json"])
def test_what_is_damaged_or_missing_is_said(tmp_path: Path, name: str) -> None:
    ledger = Ledger(Directory(str(tmp_path)))
    ledger.commit(make_entry(1, tmp_path, "a"))
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(ConfigError, match="is unreadable"):
        ledger.read()
    if "ledger" in name:
        (tmp_path / name).unlink()
        with pytest.raises(ConfigError, match="is missing"):
            ledger.read()


def test_offsets_and_positions_only_grow() -> None:
    contents = Contents(format="delta").advance({QUEUE: 5}, {"b": 100})
    contents = contents.advance({QUEUE: 3, MessageQueue("b", 1, "t"): 1}, {"b": 50, "c": 7})
    assert contents.read_offsets() == {QUEUE: 5, MessageQueue("b", 1, "t"): 1}
    assert (contents.positions, contents.format) == ({"b": 100, "c": 7}, "delta")
    assert msgspec.json.decode(msgspec.json.encode(contents), type=Contents) == contents


def test_a_place_knows_its_files(tmp_path: Path) -> None:
    place = Directory(f"file://{tmp_path}")
    assert place.is_local and str(place) == str(tmp_path)
    assert place.locate("x/y") == f"file://{tmp_path}/x/y"
    assert (place.read("none"), place.exists("none"), list(place.list_files("none")), place.list_names("none")) == (
        None,
        False,
        [],
        [],
    )
    place.replace("d/one", b"1")
    place.replace("d/one", b"22")
    assert [(facts.path, facts.size) for facts in place.list_files("")] == [("d/one", 2)]
    place.move("d/one", "e/f/one")
    place.move("d/one", "e/f/one")  # done before
    assert place.read("e/f/one") == b"22"
    with pytest.raises(ConfigError, match="both missing"):
        place.move("d/two", "e/two")
    place.remove_file("e/f/one")
    place.remove_file("e/f/one")
    place.remove_directory("e")
    place.remove_directory("e")
    assert place.list_names("") == ["d"]
    with pytest.raises(ConfigError, match="cannot be used"):
        Directory("gopher://somewhere")
