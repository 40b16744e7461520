"""Takes the pictures of docs/console.md: epochal top, ui and report on streams in several states.

Needs chromium and chromedriver (`tests/cli/console/browser.py`). Run it as `.venv/bin/python -m scripts.screenshots`.
The streams are those of the console's tests: real journals, written without Spark, with times as a real stream has
them.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from epochal.cli.console import top
from epochal.cli.console.watch import Reader, Reading
from tests.cli.console import browser, gallery
from tests.cli.console.serving import serving

IMAGES = Path(__file__).parent.parent / "docs" / "images"
LIMIT = 150_000  # bytes
WIDTH = 1100
MARGIN = 16


def take(chrome: Chrome, name: str, last: str, *, first: str = "html") -> None:
    """Write a picture of the page, from the top of one element to the bottom of another."""
    chrome.execute_script("scrollTo(0, 0)")
    top_of, bottom_of = (
        chrome.execute_script("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        for selector in (first, last)
    )
    above = 0 if first == "html" else MARGIN
    start, end = top_of["top"] - above, bottom_of["bottom"] + MARGIN
    clip = {"x": max(0, top_of["left"] - above), "y": start, "height": end - start, "scale": 1}
    clip["width"] = WIDTH - clip["x"]
    options = {"format": "png", "clip": clip, "captureBeyondViewport": True}
    file = IMAGES / f"{name}.png"
    file.write_bytes(base64.b64decode(chrome.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))
    size = file.stat().st_size
    print(f"{file.relative_to(Path.cwd())}: {size:,} bytes")
    if size > LIMIT:
        sys.exit(f"{file.name} is larger than {LIMIT:,} bytes: show less")


def click(chrome: Chrome, selector: str, then: str) -> None:
    """Click, and wait for what appears."""
    chrome.execute_script(
        "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', {bubbles: true}))", selector
    )
    WebDriverWait(chrome, 20).until(presence_of_element_located((By.CSS_SELECTOR, then)))


def scheme(chrome: Chrome, name: str) -> None:
    """Prefer light or dark."""
    features = [{"name": "prefers-color-scheme", "value": name}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def ui(chrome: Chrome, streams: list[Path]) -> None:
    """The page in a browser."""
    with serving(*streams) as server:
        scheme(chrome, "light")
        chrome.get(server.url)
        click(chrome, '.epoch[data-epoch="43"]', "#epoch-details")
        take(chrome, "ui-running", "#epoch-details")
        click(chrome, '[data-key="stream 2"]', '[data-doubt="17"]')
        take(chrome, "ui-in-doubt", ".chart")
        scheme(chrome, "dark")
        click(chrome, '[data-key="stream 1"]', '[data-held="12"]')
        take(chrome, "ui-held", ".chart")
        scheme(chrome, "light")
        click(chrome, '[data-key="stream 3"]', "#section-open-parts")
        take(chrome, "ui-open-parts", "section:has(#section-open-parts)", first="section:has(#section-open-parts)")
        click(chrome, '[data-key="stream 0"]', "#section-audit")
        click(chrome, '[data-key="audit"]', "#audit-result .badge")
        take(chrome, "ui-audit", "#audit-result", first="section:has(#section-audit)")


def terminal(chrome: Chrome, streams: list[Path], folder: Path) -> None:
    """One frame of epochal top."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    readings = [Reading(checkpoint=str(path), snapshot=Reader(str(path), None)()) for path in streams]
    console.print(top.frame(readings, time.time(), width=console.width))
    page = folder / "top.svg"
    page.write_text(console.export_svg(title="epochal top checkpoints/*"), encoding="utf-8")
    chrome.get(page.as_uri())
    take(chrome, "top", "svg > rect", first="svg > rect")


def main() -> None:
    """Take them all."""
    IMAGES.mkdir(exist_ok=True)
    gallery.register()
    with tempfile.TemporaryDirectory(prefix="shop-") as folder, browser.started(width=WIDTH, height=900) as chrome:
        root = Path(folder, "checkpoints")
        running, held = gallery.running(root), gallery.held(root)
        streams = [running, held, *gallery.dead(root, "clicks", "sessions")]
        ui(chrome, streams)
        terminal(chrome, streams[:3], Path(folder))


if __name__ == "__main__":
    main()
