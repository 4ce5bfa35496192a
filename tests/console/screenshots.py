"""Writes docs/screenshots: every page, light and dark, English and Chinese, wide and narrow.

`python -m tests.console.screenshots docs/screenshots [PAGE...]`
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.console.browsing import ADMIN, CHROMIUM_FLAGS, PASSWORD, ConsoleProcess, choose_first_password, log_in
from tests.console.pagelist import list_pages
from tests.console.scenery import build_scenery
from tests.interop.brokers import ErucaCluster
from tests.patience import PATIENCE_S

#: Theme, language and width of each picture.
LOOKS: Final = (("light", "en", 1440), ("dark", "en", 1440), ("light", "zh", 1440), ("dark", "zh", 390))
_CLUSTER: Final = "production"
_HEIGHT: Final = 900
_HEIGHT_MAX: Final = 1600
_COLOURS: Final = 128
# What a page loads after it is there: the first events of what is live.
_SETTLED_MS: Final = 2500


def main(folder: Path, wanted: Sequence[str]) -> None:
    """Start a cluster and a console, and write the pictures of all pages, or of some."""
    with tempfile.TemporaryDirectory() as home, ErucaCluster(Path(home) / "cluster") as cluster:
        options = {"consoleWatchInterval": 500}
        with ConsoleProcess(Path(home) / "page", {_CLUSTER: cluster.name_server}, options) as console:
            asyncio.run(_take_all(cluster.name_server, console, folder, wanted))


async def _take_all(nameserver: str, console: ConsoleProcess, folder: Path, wanted: Sequence[str]) -> None:
    state = await asyncio.to_thread(choose_first_password, console)
    async with build_scenery(nameserver) as scenery, async_playwright() as playwright:
        await asyncio.to_thread(_make_changes, console)
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(CHROMIUM_FLAGS))
        await _take_log_in(browser, console, folder, wanted)
        for theme, language, width in LOOKS:
            context = await browser.new_context(
                storage_state=state,
                color_scheme="dark" if theme == "dark" else "light",
                locale=language,
                viewport={"width": width, "height": _HEIGHT},
            )
            page = await context.new_page()
            for name, path in list_pages(scenery, _CLUSTER).items():
                if not wanted or name in wanted:
                    await page.goto(console.address + path)
                    await _save(page, folder / f"{name}-{theme}-{language}-{width}.png")
            await context.close()
        await browser.close()


def _make_changes(console: ConsoleProcess) -> None:
    """Make some changes with the API, so that the audit log has rows, and a rule whose alarm fires."""
    with httpx.Client(base_url=console.address, timeout=PATIENCE_S) as client:
        log_in(client, ADMIN, PASSWORD)
        head = {"X-CSRF-Token": client.get("/api/session").json()["csrf"]}
        rule = {"name": "reporting is late", "kind": "lag", "threshold": 100, "duration": 0, "enabled": True}
        for path, fields in (
            ("new/topic", {"topic": "shop-coupons", "queues": 4, "permission": "RW"}),
            ("topics/shop-refunds/change", {"write_queues": 6, "read_queues": 6, "permission": "RW"}),
            ("brokers/broker-a/config", {"key": "fileReservedTime", "value": "96"}),
            ("alarms/new/rule", rule),
        ):
            answer = client.post(f"/api/c/{_CLUSTER}/{path}", json=fields, headers=head)
            assert answer.status_code < 400, f"{path}: {answer.text}"


async def _take_log_in(browser: Browser, console: ConsoleProcess, folder: Path, wanted: Sequence[str]) -> None:
    for theme, language, width in LOOKS:
        if wanted and "login" not in wanted:
            return
        context = await browser.new_context(
            color_scheme="dark" if theme == "dark" else "light",
            locale=language,
            viewport={"width": width, "height": _HEIGHT},
        )
        page = await context.new_page()
        await page.goto(f"{console.address}/login")
        await _save(page, folder / f"login-{theme}-{language}-{width}.png")
        await context.close()


async def _save(page: Page, file: Path) -> None:
    """Write a picture with few colours, which is a quarter as large, of at most the height of two screens."""
    file.parent.mkdir(parents=True, exist_ok=True)
    await expect(page.locator(".htmx-request")).to_have_count(0)
    await page.wait_for_timeout(_SETTLED_MS if await page.locator("[data-live]").count() else 100)
    taken = Image.open(io.BytesIO(await page.screenshot(full_page=True)))
    shown = taken.crop((0, 0, taken.width, min(taken.height, _HEIGHT_MAX)))
    shown.convert("RGB").quantize(_COLOURS, method=Image.Quantize.MEDIANCUT).save(file, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
