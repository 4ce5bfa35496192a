"""The documentation site builds without a warning, has no dead link, and documents every public name and command."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from eruca._cli.main import main as eruca
from eruca._cli.namesdoc import describe, list_modules
from tests.figures import note_figures
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tools.docstrings import fence_examples
from tools.site import correct, list_commands, make_context, write_commands

SECONDS_MAX = 4 * PATIENCE_S


class Page(HTMLParser):
    """What a page of the site links to, and what can be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in {"href", "src"} and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"^(WARNING|ERROR)", done.stdout + done.stderr, re.MULTILINE), done.stderr
    return folder


@pytest.mark.whole
def test_no_link_is_dead(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    count = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if parts.fragment and target in pages and not parts.fragment.startswith(("__", "query=")):
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.relative_to(site)}: {link}"
            count += 1
    assert count > 1000
    note_figures(f"site: {len(pages)} pages, {count} links, none dead")


@pytest.mark.whole
def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]+)"', text)
        assert loaded == [], path.name


@pytest.mark.whole
def test_every_public_name_has_a_place_in_the_site(site: Path) -> None:
    missing, count = [], 0
    for name, public in list_public():
        page = Page(site / "reference" / f"{name}.html")
        for each in public:
            count += 1
            if f"{name}.{each}" not in page.anchors:
                missing.append(f"{name}.{each}")
    assert missing == []
    note_figures(f"site: all {count} public names are in the reference")


@cache
def list_public() -> list[tuple[str, list[str]]]:
    """The public modules and what is in their `__all__`."""
    return [(name, list(importlib.import_module(name).__all__)) for name in list_modules()]


def test_every_public_name_is_documented() -> None:
    bare = [f"{m}.{n}" for m, names in list_public() for n in names if not describe(importlib.import_module(m), n)]
    assert bare == []


@pytest.mark.whole
def test_examples_of_docstrings_are_code(site: Path) -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")}
    assert [name for name, text in texts.items() if "<blockquote>" in text] == []
    assert '<span class="gp">&gt;&gt;&gt; </span>' in texts["eruca.sync.html"]


def test_an_example_ends_at_an_empty_line() -> None:
    text = "Says a.\n\n>>> a = 1\n>>> a\n1\n\nMore: b >>> 2.\n\n    >>> c\n"
    fenced = "Says a.\n\n```pycon\n>>> a = 1\n>>> a\n1\n```\n\nMore: b >>> 2.\n\n    ```pycon\n    >>> c\n    ```\n"
    assert fence_examples(text) == fenced


@pytest.mark.whole
def test_every_command_is_in_the_site(site: Path) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")
    found = list(list_commands(eruca, make_context()))
    assert len(found) > 100
    assert [path for path, _command, _context in found if f'id="{"-".join(path)}"' not in text] == []


def test_the_help_of_a_command_is_what_it_prints() -> None:
    """But for the width of the terminal."""
    page = " ".join(write_commands().split())
    for words in (["topic", "show"], ["doctor"]):
        printed = CliRunner().invoke(eruca, [*words, "--help"], prog_name="eruca").output
        assert "-h, --help" in printed
        assert f"```text {' '.join(printed.split())} ```" in page, words


def test_defaults_of_the_reference_are_values_or_names() -> None:
    kinds = [getattr(importlib.import_module(module), name) for module, names in list_public() for name in names]
    unclear = {
        f"{kind.__name__}.{field.name}"
        for kind in kinds
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
        for field in dataclasses.fields(kind)
        if getattr(field.default_factory, "__name__", "") == "<lambda>"
    }
    assert unclear == set()


@pytest.mark.whole
def test_the_search_finds_pages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    texts = " ".join(document["text"] for document in index["docs"])
    for word in ("inSyncReplicas", "RetryLater", "eruca_broker_replication_lag_bytes"):
        assert word in texts


# --- pages are corrected ----------------------------------------------------------------------------------------------

PAGES = {"index.md", "examples.md", "guide/clients.md", "CONFIG.md", "images/overview.svg"}


@pytest.mark.parametrize(
    ("place", "page", "text", "expected"),
    [
        ("README.md", "index.md", "[a](docs/guide/clients.md#x)", "[a](guide/clients.md#x)"),
        ("README.md", "index.md", "![a](docs/images/overview.svg)", "![a](images/overview.svg)"),
        ("docs/guide/clients.md", "guide/clients.md", "[a](../../examples/README.md)", "[a](../examples.md)"),
        ("docs/guide/clients.md", "guide/clients.md", "[a](../CONFIG.md)", "[a](../CONFIG.md)"),
        ("examples/README.md", "examples.md", "[a](../LICENSE)", "[a](https://eruca.example/source/blob/main/LICENSE)"),
        ("README.md", "index.md", "[a](https://x.example) [b](#c)", "[a](https://x.example) [b](#c)"),
        ("README.md", "index.md", "| `a\\|b` | c |\n`d\\|e`", "| `a|b` | c |\n`d\\|e`"),
        ("README.md", "index.md", "```python endless\n[a](b)\n```", "```python\n[a](b)\n```"),
    ],
)
def test_links_and_fences_are_those_of_the_site(place: str, page: str, text: str, expected: str) -> None:
    assert correct(text, PurePosixPath(place), page, PAGES) == expected


def list_svgs() -> Iterator[Path]:
    yield from sorted((REPOSITORY / "docs" / "images").glob("*.svg"))


def test_every_drawing_is_used() -> None:
    written = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    pages = " ".join(path.read_text(encoding="utf-8") for path in written)
    assert [path.name for path in list_svgs() if path.name not in pages] == []


# How wide a letter is at most, as a share of its size: in the widest of the fonts that browsers may take.
WIDE = 0.6


def test_texts_of_a_drawing_fit_into_their_boxes() -> None:
    root = ElementTree.parse(REPOSITORY / "docs" / "images" / "overview.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        [float(box.attrib[key]) for key in ("x", "y", "width", "height")]
        for box in root.iter(f"{space}rect")
        if "x" in box.attrib
    ]
    count = 0
    for text in root.iter(f"{space}text"):
        if text.attrib["text-anchor"] != "middle" or not text.text:
            continue
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        around = [box[2] for box in boxes if box[0] < x < box[0] + box[2] and box[1] < y < box[1] + box[3]]
        if around:
            count += 1
            assert len(text.text) * float(text.attrib["font-size"]) * WIDE < min(around), text.text
    assert count > 10
