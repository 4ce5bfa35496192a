"""Files of accounts: Java's own, every field, and errors that name file, account and field but no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca._access.accountfiles import list_files, read_book, read_stamp
from eruca._access.accounts import DENY, PUB, SUB
from eruca._ground.limits import ACL_FILES_MAX, YAML_FILE_BYTES_MAX
from eruca._wire.bodies import DataVersion
from eruca.errors import ConfigError

SECRET = "do-not-print-me"
# The file that RocketMQ 4.9 ships.
JAVA = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def write(directory: Path, text: str, name: str = "plain_acl.yml") -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def account_with(field: str) -> str:
    return f"accounts:\n- accessKey: account-one\n  secretKey: {SECRET}\n  {field}\n"


def test_the_file_of_java(tmp_path: Path) -> None:
    book = read_book(write(tmp_path, JAVA))
    assert [pattern.text for pattern in book.white_addresses] == ["10.10.103.*", "192.168.0.*"]
    first, second = book.accounts.values()
    assert (first.access_key, first.secret_key, first.admin) == ("RocketMQ", "12345678", False)
    assert (first.default_topic, first.default_group) == (DENY, SUB)
    assert first.permissions == {
        "topicA": DENY,
        "topicB": PUB | SUB,
        "topicC": SUB,
        "%RETRY%groupA": DENY,
        "%RETRY%groupB": PUB | SUB,
        "%RETRY%groupC": SUB,
    }
    assert (second.admin, second.permissions, second.white_address.text) == (True, {}, "192.168.1.*")
    assert not (first.broker or first.upload or first.certificate or first.is_set_apart)
    assert book.notes == ()
    assert list(book.versions.values()) == [DataVersion()]


def test_fields_of_our_own(tmp_path: Path) -> None:
    digits = "AB:" * 31 + "AB"
    text = account_with(f"broker: true\n  upload: 'true'\n  certificate: '{digits}'")
    path = write(tmp_path, text + "brokerRemoteAddresses:\n- 10.1.1.1\ndataVersion:\n- counter: 3\n  timestamp: 7\n")
    book = read_book(path)
    (account,) = book.accounts.values()
    assert account.broker and account.upload and account.is_set_apart
    assert account.certificate == "ab" * 32
    assert book.by_certificate == {"ab" * 32: account}
    assert [pattern.text for pattern in book.broker_addresses] == ["10.1.1.1"]
    assert book.versions == {path: DataVersion(counter=3, timestamp=7)}


def test_further_files(tmp_path: Path) -> None:
    first = write(tmp_path, JAVA)
    more = write(tmp_path, account_with("admin: true"), "acl/one.yml")
    (tmp_path / "acl" / "deep").mkdir()
    deep = write(tmp_path / "acl", account_with("").replace("one", "two"), "deep/two.yaml")
    for name in ("tools.yml", "notes.txt"):
        write(tmp_path / "acl", "accessKey: x", name)
    assert list_files(first) == [first, more, deep]
    book = read_book(first)
    assert {key: account.file for key, account in book.accounts.items()} == {
        "RocketMQ": first,
        "rocketmq2": first,
        "account-one": more,
        "account-two": deep,
    }
    stamp = read_stamp(first)
    assert read_stamp(first) == stamp
    deep.unlink()
    assert read_stamp(first) != stamp
    first.unlink()
    assert list(read_book(first).accounts) == ["account-one"]


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("admin: perhaps", "admin is neither true nor false"),
        ("defaultTopicPerm: PUBLISH", "defaultTopicPerm 'PUBLISH' is not a permission"),
        ("defaultGroupPerm: [SUB]", "defaultGroupPerm is not a text"),
        ("topicPerms: orders=PUB", "topicPerms is not a list of texts"),
        ("topicPerms: [orders]", "topicPerms 'orders' is not NAME=PERMISSION"),
        ("topicPerms: [orders=ANY]", "topicPerms 'ANY' is not a permission"),
        ("groupPerms: [=SUB]", "groupPerms '=SUB' is not NAME=PERMISSION"),
        ("groupPerms: [1]", "groupPerms is not a list of texts"),
        ("whiteRemoteAddress: 10.1.1.300", "whiteRemoteAddress '10.1.1.300' is not an address pattern"),
        ("certificate: abc", "certificate is not the SHA-256 fingerprint"),
        ("broker: 1", "broker is neither true nor false"),
    ],
)
def test_an_error_names_file_account_and_field(tmp_path: Path, field: str, problem: str) -> None:
    path = write(tmp_path, account_with(field))
    with pytest.raises(ConfigError) as caught:
        read_book(path)
    assert str(caught.value).startswith(f"{path}: account account-one: {problem}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no accounts"),
        ("accounts:\n", "has no accounts"),
        ("- one\n", "is not a mapping"),
        ("accounts: {}\n", "accounts is not a list of mappings"),
        ("accounts: [one]\n", "accounts is not a list of mappings"),
        (f"accounts: [{{accessKey: short, secretKey: {SECRET}}}]", "account short: accessKey has 5 characters"),
        ("accounts: [{accessKey: long-enough, secretKey: short}]", "secretKey has 5 characters"),
        (f"accounts: [{{secretKey: {SECRET}}}]", "account number 1: accessKey has 0 characters"),
        ("accounts: [{accessKey: long-enough}]", "secretKey has 0 characters"),
        (f"accounts: [{{accessKey: 2024-01-01, secretKey: {SECRET}}}]", "accessKey is not a text"),
        (f'accounts: [{{accessKey: "a\\tb\\nc\\nd\\ne", secretKey: {SECRET}}}]', "cannot be printed"),
        (f"accounts: [{{accessKey: {'x' * 300}, secretKey: {SECRET}}}]", "accessKey has 300 characters"),
        (f"accounts: [{{accessKey: account-one, secretKey: {SECRET}, secretKey: other-secret}}]", "is there twice"),
        (f"accounts:\n- accessKey: [{SECRET}\n", "is not YAML"),
        (f"!!python/object/apply:os.system ['{SECRET}']", "is not YAML"),
        ("a: " + "[" * 100_000 + "]" * 100_000, "cannot be read: RecursionError"),
        (account_with("") + "globalWhiteRemoteAddresses: 10.1.1.1", "globalWhiteRemoteAddresses is not a list"),
        (account_with("") + "globalWhiteRemoteAddresses: [nowhere]", "globalWhiteRemoteAddresses: 'nowhere' is not"),
        (account_with("") + "dataVersion: [{counter: -1}]", "dataVersion has no whole numbers"),
        (account_with("") + "dataVersion: [one]", "dataVersion is not a list of mappings"),
        (account_with("") + f"- accessKey: account-one\n  secretKey: {SECRET}\n", "is also in"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_book(path)
    assert problem in str(caught.value) and str(path) in str(caught.value)
    assert SECRET not in str(caught.value)


def test_two_accounts_with_one_certificate(tmp_path: Path) -> None:
    one = account_with(f"certificate: {'a1' * 32}")
    two = one.replace("accounts:\n", "").replace("one", "two")
    with pytest.raises(ConfigError, match="account-one and account-two have the same certificate"):
        read_book(write(tmp_path, one + two))


def test_sizes_are_bounded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than"):
        read_book(write(tmp_path, "#" * (YAML_FILE_BYTES_MAX + 1)))
    for number in range(ACL_FILES_MAX):
        write(tmp_path, "", f"acl/{number}.yml")
    with pytest.raises(ConfigError, match=f"more than {ACL_FILES_MAX} files"):
        read_book(tmp_path / "plain_acl.yml")


def test_a_missing_file_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plain_acl.yml does not exist \(`eruca init`"):
        read_book(tmp_path / "plain_acl.yml")


def test_what_is_odd_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path, account_with("topicPerm: []") + "somethingElse: 1\n")
    path.chmod(0o644)
    notes = read_book(path).notes
    assert [note.removeprefix(f"{path}") for note in notes] == [
        ": somethingElse has no effect",
        f" has secrets and can be read by others (chmod 600 {path})",
        ": account account-one: topicPerm has no effect",
    ]


def test_a_secret_is_in_no_repr(tmp_path: Path) -> None:
    assert SECRET not in repr(read_book(write(tmp_path, account_with(""))))
