"""Writes docs/screenshots: every page, light and dark, English and Chinese, wide and narrow.

`python -m tests.console.screenshots docs/screenshots [PAGE...]`
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Page, StorageState, expect, sync_playwright

from tests.console.browsing import ConsoleProcess, choose_first_password, launch
from tests.console.pagelist import LOG_IN, list_pages, open_page
from tests.console.scenery import allow_here, keep_scenery
from tests.interop.brokers import ErucaCluster
from tests.patience import PATIENCE_S

#: Theme, language and width of each picture.
_THEMES: Final = ("light", "dark")
_LANGUAGES: Final = ("en", "zh")
LOOKS: Final = tuple((theme, language, width) for width, theme, language in product((1440, 390), _THEMES, _LANGUAGES))
_CLUSTER: Final = "production"
# What a broker shows of itself has the same path in each run.
_HOME: Final = "eruca-screenshots"
_HEIGHT: Final = 900
_HEIGHT_MAX: Final = 1400
_PHONE: Final = 500
_COLOURS: Final = 64
_BROWSERS: Final = 2
# For this long the console watches the cluster before the first picture, so that charts have something to show.
_WATCHED_S: Final = 60
# After a page is there: what is drawn by scripts, and a few events of what is live.
_DRAWN_MS: Final = 100
_LIVE_MS: Final = 4000


def main(folder: Path, wanted: Sequence[str]) -> None:
    """Start a cluster and a console, and write the pictures of all pages, or of some."""
    home = Path(tempfile.gettempdir()) / _HOME
    home.mkdir()
    try:
        with ErucaCluster(home / "broker", allow_here(home)) as cluster:
            options = {"consoleWatchInterval": 1000}
            with ConsoleProcess(home / "page", {_CLUSTER: cluster.name_server}, options) as console:
                _take_all(cluster.name_server, console, folder, wanted)
    finally:
        shutil.rmtree(home)


def _take_all(nameserver: str, console: ConsoleProcess, folder: Path, wanted: Collection[str]) -> None:
    state = choose_first_password(console)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        keep_scenery(nameserver, console, _CLUSTER, busy=True) as scenery,
        ThreadPoolExecutor(_BROWSERS) as pool,
    ):

        def take(number: int) -> None:
            pages = {"login": LOG_IN, **list_pages(scenery, _CLUSTER, queue=number)}
            shown = {name: console.address + path for name, path in pages.items() if not wanted or name in wanted}
            _take(LOOKS[number], shown, folder, state)

        threading.Event().wait(_WATCHED_S)
        for _ in pool.map(take, range(len(LOOKS))):
            pass


def _take(look: tuple[str, str, int], pages: dict[str, str], folder: Path, state: StorageState) -> None:
    """Take the pictures of one look, in a browser of its own."""
    theme, language, width = look
    settings: dict[str, Any] = {
        "color_scheme": theme,
        "locale": language,
        "viewport": {"width": width, "height": _HEIGHT},
        "is_mobile": width < _PHONE,
        "has_touch": width < _PHONE,
    }
    with sync_playwright() as playwright:
        browser = launch(playwright)
        stranger = browser.new_context(**settings).new_page()
        user = browser.new_context(**settings, storage_state=state).new_page()
        for page in (stranger, user):
            page.set_default_timeout(1000 * PATIENCE_S)
        for name, url in pages.items():
            page = stranger if url.endswith(LOG_IN) else user
            open_page(page, name, url)
            _save(page, folder / f"{name}-{theme}-{language}-{width}.webp")
        browser.close()


def _save(page: Page, file: Path) -> None:
    """Write a picture of at most the height of a screen and a half."""
    is_live = page.locator("[data-live]").count() > 0
    page.wait_for_timeout(_LIVE_MS if is_live else _DRAWN_MS)
    size = page.viewport_size
    assert size is not None
    # A window as high as the page: what sticks to the window is where it belongs then.
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": min(max(height, size["height"]), _HEIGHT_MAX)})
    expect(page.locator(".htmx-request")).to_have_count(0)
    taken = Image.open(io.BytesIO(page.screenshot()))
    page.set_viewport_size(size)
    _keep_few_colours(taken.convert("RGB")).save(file, lossless=True, quality=100, method=6)


def _keep_few_colours(image: Image.Image) -> Image.Image:
    """Return a picture with its most frequent colours only, which is half as large: areas stay as they are."""
    counted = image.getcolors(image.width * image.height)
    assert counted is not None
    most: list[Any] = sorted(counted, reverse=True)[:_COLOURS]
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for _, colour in most for value in colour])
    return image.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
