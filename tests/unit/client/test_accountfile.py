"""The account of a client in a file: mqadmin's form, JSON, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from eruca._cli.main import main
from eruca._client.accountfile import read_account_file
from eruca._wire.signature import Credentials
from eruca.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accessKey: rocketmq2\nsecretKey: 12345678\n", Credentials("rocketmq2", "12345678")),
        ('{"accessKey": "shop", "secretKey": "x: y", "securityToken": "t"}', Credentials("shop", "x: y", "t")),
    ],
)
def test_forms(tmp_path: Path, text: str, expected: Credentials) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    assert read_account_file(path) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "accessKey or secretKey is missing"),
        ("accessKey: shop\n", "accessKey or secretKey is missing"),
        ("accessKey: [shop]\nsecretKey: hidden-one\n", "accessKey is not a text"),
        ("- hidden-one", "is not a mapping"),
        ("accessKey: {hidden-one", "is not YAML"),
    ],
)
def test_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        read_account_file(path)
    assert "hidden-one" not in str(caught.value)


def test_a_command_reports_a_wrong_file_at_once(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yml")
    for arguments in (["tail", "--account", missing, "hello"], ["offset", "show", "--account", missing, "billing"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2
        assert f"{missing} cannot be read: No such file or directory" in result.stderr
    result = CliRunner().invoke(main, ["tail", "hello"], env={"ERUCA_ACCOUNT_FILE": missing})
    assert f"{missing} cannot be read" in result.stderr
