"""The guide of the console: it has every option of alarms and of schemas, and its receiver accepts our signatures."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from eruca._console.options import ConsoleOptions
from eruca._console.watching.options import WatchingOptions
from eruca._console.watching.webhooks import sign
from eruca._ground.config import info_of
from tests.paths import REPOSITORY

GUIDES = (REPOSITORY / "docs" / "guide" / "console.md", REPOSITORY / "docs" / "zh" / "guide" / "console.md")


@pytest.mark.parametrize("guide", GUIDES, ids=("en", "zh"))
def test_options_of_alarms_and_schemas_are_in_the_guide(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    keys = [each.java for options in (WatchingOptions, ConsoleOptions) for each in info_of(options).values()]
    wanted = {key for key in keys if key.startswith("alarm") or key in ("consoleWatchInterval", "consoleSchemas")}
    assert len(wanted) > 8
    assert {key for key in wanted if f"`{key}`" not in text} == set()


@pytest.mark.parametrize("guide", GUIDES, ids=("en", "zh"))
def test_the_receiver_of_the_guide_accepts_what_is_signed(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Callable[..., bool]] = {}
    exec(code, names)
    now, body = int(time.time()), b'{"event": "fired"}'
    signature = f"sha256={sign('secret', now, body)}"
    is_genuine = names["is_genuine"]
    assert is_genuine("secret", str(now), signature, body)
    assert not is_genuine("other", str(now), signature, body)
    assert not is_genuine("secret", str(now), signature, body + b" ")
    old = now - 3600
    assert not is_genuine("secret", str(old), f"sha256={sign('secret', old, body)}", body)
    (schemas,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert {facts["format"] for facts in yaml.safe_load(schemas).values()} == {"avro", "protobuf"}
