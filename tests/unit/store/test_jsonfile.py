"""Small JSON files: replaced in one step, and read whatever is in them."""

from __future__ import annotations

import msgspec
import pytest

from eruca._store import jsonfile as jsonfile_module
from eruca._store.jsonfile import FileDamaged, FileEmpty, JsonFile
from eruca._testing.faults import SimulatedDisk
from eruca.errors import TableFull
from tests.unit.store.samples import ROOT, make_disk

PATH = ROOT / "config" / "numbers.json"


def make_file(disk: SimulatedDisk) -> JsonFile[dict[str, int]]:
    return JsonFile(disk, PATH, msgspec.json.Decoder(dict[str, int]).decode)


def put(disk: SimulatedDisk, data: bytes) -> None:
    disk.make_directory(PATH.parent)
    disk.write_file(PATH, data)


def test_what_was_written_is_read_after_a_power_loss() -> None:
    disk = make_disk()
    file = make_file(disk)
    assert file.read() is None and not file.exists()
    assert file.read_or({"none": 0}, "nothing follows") == {"none": 0}
    file.write({"a": 1})
    file.write({"b": 2})
    again = make_file(disk.crash("drop"))
    assert again.read() == {"b": 2}
    again.remove()
    again.remove()
    assert not again.exists()


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"a": "b"}', b'{"\xef((": 1}'])
def test_a_damaged_file_is_named_with_what_follows_from_it(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk = make_disk()
    put(disk, data)
    with pytest.raises(FileDamaged) as caught:
        make_file(disk).read()
    assert not isinstance(caught.value, FileEmpty)
    assert make_file(disk).read_or({}, "all begins anew") == {}
    assert f"{PATH} is unreadable, all begins anew" in caplog.text


def test_an_empty_file_is_damaged_too() -> None:
    disk = make_disk()
    put(disk, b" \n")
    with pytest.raises(FileEmpty, match="empty"):
        make_file(disk).read()


def test_a_file_has_no_more_than_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = make_disk()
    file = make_file(disk)
    file.write({"a": 1})
    monkeypatch.setattr(jsonfile_module, "TABLE_BYTES_MAX", 6)
    with pytest.raises(FileDamaged, match="larger than 6 bytes"):
        file.read()
    with pytest.raises(TableFull, match="at most 6"):
        file.write({"b": 2})
