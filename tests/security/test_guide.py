"""The guide lists the codes of each right as the catalog has them."""

from __future__ import annotations

import re

from eruca._wire.catalog import CATALOG, Right
from tests.paths import REPOSITORY

NOT_OF_SERVERS = {Right.NOBODY, Right.SERVER}


def test_the_table_of_rights_is_that_of_the_catalog() -> None:
    page = (REPOSITORY / "docs" / "guide" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]+) \| .* \| ([\d, ]+) \|$", page, re.MULTILINE)
    listed = {Right[name]: {int(code) for code in codes.split(",")} for name, codes in rows}
    declared: dict[Right, set[int]] = {}
    for code, spec in CATALOG.items():
        if spec.right not in NOT_OF_SERVERS:
            declared.setdefault(spec.right, set()).add(int(code))
    assert listed == declared
