"""Takes the pictures of docs/console.md: epochal top and ui on real streams in several states.

Needs Java, chromium and chromedriver (`tests/cli/console/browser.py`), and a Cassandra that may be killed
(docs/servers.md). Run it as `.venv/bin/python -m scripts.screenshots`; it takes some minutes.

The streams are those of `scripts/shop.py`, with files, Delta tables and a Cassandra table: *orders* runs, and was
started twice; the Cassandra of *payments* is killed, so it is held; the drivers of *clicks* are killed, two of them in
the same epoch, so that is in doubt; *sessions* has ended, with parts that are still open.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cassandra.cluster import Cluster
from rich.console import Console
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from epochal.cli.console import top
from epochal.cli.console.model import StreamSnapshot
from epochal.cli.console.watch import Reader, Reading
from epochal.testing import servers
from epochal.txn import failpoints
from scripts import shop
from tests.cli.console import browser
from tests.cli.console.serving import serving

IMAGES = Path(__file__).parent.parent / "docs" / "images"
LIMIT = 150_000  # bytes
WIDTH = 1100
PHONE_WIDTH = 390
PHONE = {"width": PHONE_WIDTH, "height": 844, "deviceScaleFactor": 1, "mobile": True}
CHART = "section:has(.chart)"
IN_DOUBT = 17  # the epoch of clicks in which its drivers die
HELD = 12  # the epoch of payments that its Cassandra does not take
LAST = 45  # the epoch of orders in the pictures
PACE = 0.7  # seconds between two files
MARGIN = 16


def take(chrome: Chrome, name: str, last: str, *, first: str = "html", width: int = WIDTH) -> None:
    """Write a picture of the page, from the top of one element to the bottom of another."""
    chrome.execute_script("scrollTo(0, 0)")
    top_of, bottom_of = (
        chrome.execute_script("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        for selector in (first, last)
    )
    above = 0 if first == "html" else MARGIN
    start, end = top_of["top"] - above, bottom_of["bottom"] + MARGIN
    clip = {"x": max(0, top_of["left"] - above), "y": start, "height": end - start, "scale": 1}
    clip["width"] = width - clip["x"]
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
    WebDriverWait(chrome, 120).until(presence_of_element_located((By.CSS_SELECTOR, then)))


def scheme(chrome: Chrome, name: str) -> None:
    """Prefer light or dark."""
    features = [{"name": "prefers-color-scheme", "value": name}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def ui(chrome: Chrome, streams: list[Path]) -> None:
    """The page in a browser."""
    with serving(*streams) as server:
        scheme(chrome, "light")
        chrome.get(server.url)
        click(chrome, f'.epoch[data-epoch="{LAST - 2}"]', "#epoch-details")
        take(chrome, "ui-running", "#epoch-details")
        click(chrome, '[data-key="stream 2"]', f'[data-doubt="{IN_DOUBT}"]')
        take(chrome, "ui-in-doubt", CHART)
        scheme(chrome, "dark")
        click(chrome, '[data-key="stream 1"]', f'[data-held="{HELD}"]')
        take(chrome, "ui-held", CHART)
        scheme(chrome, "light")
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        take(chrome, "ui-phone", CHART, width=PHONE_WIDTH)
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        click(chrome, '[data-key="stream 3"]', "#section-open-parts")
        take(chrome, "ui-open-parts", "section:has(#section-open-parts)", first="section:has(#section-open-parts)")
        click(chrome, '[data-key="stream 0"]', "#section-audit")
        click(chrome, '[data-key="audit"]', "#audit-result .badge")
        take(chrome, "ui-audit", "#audit-result", first="section:has(#section-audit)")


def terminal(chrome: Chrome, streams: list[Path], folder: Path) -> None:
    """One frame of epochal top."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    readings = [Reading(checkpoint=str(path), snapshot=snapshot(path)) for path in streams]
    console.print(top.frame(readings, time.time(), width=console.width))
    page = folder / "top.svg"
    page.write_text(console.export_svg(title="epochal top checkpoints/*"), encoding="utf-8")
    chrome.get(page.as_uri())
    take(chrome, "top", "svg > rect", first="svg > rect")


def snapshot(checkpoint: Path) -> StreamSnapshot:
    """How a stream stands now."""
    return Reader(str(checkpoint), None)()


@contextmanager
def driver(root: Path, port: int, *streams: str, points: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A driver of streams, in a session of its own; it and its JVM are killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.shop", str(root), str(port), *streams],
        env={**os.environ, failpoints.VARIABLE: points},
        stderr=(root / f"{'-'.join(streams)}.log").open("ab"),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def die_in_doubt(root: Path, port: int) -> None:
    """Two drivers of clicks, each killed when it has prepared the same epoch and Spark has not checkpointed it."""
    for number in range(IN_DOUBT + 1):
        shop.feed(root, "clicks", number)
    for epochs in (IN_DOUBT + 1, 1):
        with driver(root, port, "clicks", points=f"after-prepared=kill@{epochs}") as process:
            shop.wait_until(lambda process=process: process.poll() is not None, "clicks to be killed")  # type: ignore[misc]
            if process.returncode != -signal.SIGKILL:
                sys.exit((root / "clicks.log").read_text())


def main() -> None:
    """Take them all."""
    IMAGES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="shop-", ignore_cleanup_errors=True) as folder,
        servers.cassandra(own=True, tell=print) as cassandra,
    ):
        root, port = Path(folder), cassandra.port
        with Cluster(cassandra.hosts, port=port, protocol_version=5) as cluster:
            for statement in shop.CQL:
                cluster.connect().execute(statement)
        die_in_doubt(root, port)
        for number in range(9):
            shop.feed(root, "sessions", number)
        for stream in ("orders", "payments"):
            shop.feed(root, stream, 0)
        orders, payments, clicks, sessions = (
            shop.checkpoint(root, stream) for stream in ("orders", "payments", "clicks", "sessions")
        )
        with driver(root, port, "sessions", "payments", "orders"):
            for checkpoint in (orders, payments, sessions):
                shop.wait_until((checkpoint / "commits" / "0").exists, f"the first epoch of {checkpoint.name}")
            for number in range(1, LAST + 1):
                for stream in ("orders", "payments")[: 1 if number >= HELD else 2]:
                    shop.feed(root, stream, number)
                time.sleep(PACE)  # as orders come in; nothing depends on it
            shop.wait_until(lambda: snapshot(payments).done == HELD - 1, "payments to be visible")
            cassandra.nodes[0].kill()
            shop.feed(root, "payments", HELD)
            shop.wait_until(lambda: snapshot(payments).headline.standing == "held", "payments to be held")
            shop.wait_until(lambda: snapshot(orders).done == LAST, "orders to be visible")
            shop.wait_until(lambda: snapshot(sessions).headline.standing == "stopped", "sessions to end")
            with browser.started(width=WIDTH, height=900) as chrome:
                ui(chrome, [orders, payments, clicks, sessions])
                terminal(chrome, [orders, payments, clicks], root)


if __name__ == "__main__":
    main()
