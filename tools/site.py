"""What the documentation site has beside the files of docs/: hooks of mkdocs (`make docs`).

The README is the home page, and other files at the top of the repository are pages too. The reference of the Python API
and of the commands is made from the code. Links to other files of the repository lead to the source.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from eruca._cli.main import main as eruca
from eruca._cli.namesdoc import list_modules
from tools.project import REPOSITORY, read_project

# Files outside of docs/ that are pages of the site.
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "weaknesses.md",
    "examples/README.md": "examples.md",
}
_PLACES: Final = {page: path for path, page in OUTSIDE.items()}
_REFERENCE: Final = "reference"
_LINK: Final = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")
# Marks of fences are for the tests that run them: ```python endless.
_MARKS: Final = re.compile(r"^(```\w+)[^\n`]+$", re.MULTILINE)
# In tables a bar inside of code is escaped, which GitHub takes back and Python-Markdown does not.
_ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
_FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the parts of the navigation that are made."""
    nav: Any = config.nav
    config.nav = _fill(nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    pages = {page: (REPOSITORY / path).read_text(encoding="utf-8") for path, page in OUTSIDE.items()}
    pages |= {f"{_REFERENCE}/{module}.md": write_module(module) for module in list_modules()}
    pages["commands.md"] = write_commands()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Correct what a page says for readers of the repository."""
    place = PurePosixPath(_PLACES.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
    return correct(markdown, place, page.file.src_uri, {file.src_uri for file in files})


def correct(markdown: str, place: PurePosixPath, page: str, pages: set[str]) -> str:
    """Return a page as the site needs it: `place` is its file in the repository, `page` its path in the site."""
    out, end = [], 0
    for fence in _FENCE.finditer(markdown):
        out += [_correct_links(markdown[end : fence.start()], place, page, pages), _MARKS.sub(r"\1", fence[0])]
        end = fence.end()
    return "".join([*out, _correct_links(markdown[end:], place, page, pages)])


def _correct_links(text: str, place: PurePosixPath, page: str, pages: set[str]) -> str:
    def lead(match: re.Match[str]) -> str:
        target = _join(place.parent, match[1])
        wanted = OUTSIDE.get(target, target.removeprefix("docs/") if target.startswith("docs/") else "")
        if wanted in pages:
            return _relate(PurePosixPath(page).parent, PurePosixPath(wanted))
        return f"{read_project()['project']['urls']['Source']}/blob/main/{target}"

    return _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), _LINK.sub(lead, text))


def _join(folder: PurePosixPath, link: str) -> str:
    parts: list[str] = []
    for part in (folder / link).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _relate(folder: PurePosixPath, target: PurePosixPath) -> str:
    up = 0
    while not target.is_relative_to(folder):
        folder, up = folder.parent, up + 1
    return "../" * up + str(target.relative_to(folder))


def _fill(nav: Any) -> Any:
    if isinstance(nav, list):
        return [part for item in nav for part in (_list_made(item) if item in _MADE else [_fill(item)])]
    if isinstance(nav, dict):
        return {title: _fill(item) for title, item in nav.items()}
    return nav


_MADE: Final = (f"{_REFERENCE}/", "zh/")


def _list_made(folder: str) -> list[Any]:
    if folder == f"{_REFERENCE}/":
        return [{module: f"{_REFERENCE}/{module}.md"} for module in list_modules()]
    docs = REPOSITORY / "docs"
    return [path.relative_to(docs).as_posix() for path in sorted((docs / folder).rglob("*.md"), key=_sort_pages)]


def _sort_pages(path: Path) -> tuple[bool, str]:
    return path.name != "README.md", path.as_posix()


def write_module(module: str) -> str:
    """Return the page of a public module: mkdocstrings writes it from docstrings and signatures."""
    options = {"show_root_heading": False, "show_root_toc_entry": False, "members": _list_public(module)}
    return f"# `{module}`\n\n::: {module}\n    options: {json.dumps(options)}\n"


def _list_public(module: str) -> list[str]:
    """The names of `__all__`, which mkdocstrings does not know when it is not written down but made."""
    return list(importlib.import_module(module).__all__)


def write_commands() -> str:
    """Return the page with the help of every command."""
    parts = ["# Commands\n\nThe help of every command, as `eruca COMMAND --help` prints it.\n"]
    for path, command, context in list_commands(eruca, make_context()):
        level = "##" if len(path) <= len(("eruca", "command")) else "###"
        parts.append(f"{level} {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def make_context() -> click.Context:
    """Return what the commands below `eruca` inherit when it is run: the names of the option for help, too."""
    return click.Context(eruca, info_name="eruca", **eruca.context_settings)


def list_commands(
    command: click.Command, context: click.Context, path: tuple[str, ...] = ("eruca",)
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    """Yield a command and all below it: words, command, and the context for its help."""
    context.max_content_width = 110
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None, name
            if not part.hidden:
                inner = click.Context(part, info_name=name, parent=context)
                yield from list_commands(part, inner, (*path, name))
