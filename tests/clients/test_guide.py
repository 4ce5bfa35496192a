"""The pages about the clients are right: every block runs, and prints what the page says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.guidepage import Block, read_blocks
from tests.interop.brokers import Cluster
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

GUIDE = REPOSITORY / "docs" / "guide" / "clients.md"
CHINESE = REPOSITORY / "docs" / "zh"
PAGES = [REPOSITORY / "README.md", GUIDE]
# Pages in English and where they are in Chinese.
TRANSLATIONS = {
    REPOSITORY / "README.md": CHINESE / "README.md",
    **{page: CHINESE / "guide" / page.name for page in sorted(GUIDE.parent.glob("*.md"))},
}
SECONDS_MAX = PATIENCE_S


def run_page(page: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the blocks of a page in a separate process, whose files are in `home`."""
    without = {key: value for key, value in os.environ.items() if not key.startswith(("ERUCA_", "NAMESRV_"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.clients.guidepage", str(page), *arguments],
        cwd=home,
        env={**without, "HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    check_page(page, run_page(page, tmp_path))


@pytest.mark.whole
def test_the_guide_is_right_on_a_cluster_of_either_kind(cluster: Cluster, tmp_path: Path) -> None:
    check_page(GUIDE, run_page(GUIDE, tmp_path, cluster.name_server))


def check_page(page: Path, run: subprocess.CompletedProcess[str]) -> None:
    """Assert that all blocks of a page ran."""
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
    count = len(read_blocks(page))
    assert count and f"\n{count} blocks\n" in run.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\nprint(1)\n```\n\n```\n2\n```\n", "line 2 printed ['1']"),
        ("```python\nprint(1)\n```\n", "line 2 printed ['1']"),
        ("text\n\n```python\nfrom eruca import Prodcuer\n```\n", "Prodcuer"),
        ("```sh run\neruca pipeline checkpoint show gone\n```\n", "it has no offsets"),
        ("```python endless\nimport asyncio\n\nawait asyncio.sleep(0)\n```\n\n```\n1\n```\n", "is not endless"),
    ],
)
def test_a_block_that_does_something_else_is_found(text: str, said: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    run = run_page(page, tmp_path)
    assert run.returncode == 1
    assert said in run.stderr


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: page.name)
def test_the_blocks_of_a_translation_are_those_of_the_page(page: Path) -> None:
    translation = TRANSLATIONS[page]
    assert [_strip(block) for block in read_blocks(translation)] == [_strip(block) for block in read_blocks(page)]
    assert _count_sections(translation) == _count_sections(page) > 0


def _count_sections(page: Path) -> int:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return len(re.findall(r"^## ", text, re.MULTILINE))


def _strip(block: Block) -> tuple[str, bool, tuple[str, ...]]:
    """A block without its comments, which may be in another language."""
    text = block.text if block.commands else ast.unparse(ast.parse(block.text))
    return text, block.endless, block.printed


def test_everything_public_is_in_the_guide() -> None:
    import eruca

    text = GUIDE.read_text(encoding="utf-8")
    assert [name for name in eruca.__all__ if name not in text and name != "__version__"] == []
