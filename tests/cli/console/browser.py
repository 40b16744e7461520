"""Debian's chromium, headless, for tests and screenshots.

EPOCHAL_CHROMIUM and EPOCHAL_CHROMEDRIVER name the two programs where they are not on the path.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container's /dev/shm is small
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
)


def programs() -> tuple[str, str] | None:
    """The browser and its driver; None if one of them is not installed."""
    browser = os.environ.get("EPOCHAL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    driver = os.environ.get("EPOCHAL_CHROMEDRIVER") or shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


@contextmanager
def started(*, width: int = 1280, height: int = 900, scale: float = 1.0) -> Iterator[Chrome]:
    """A browser with a profile of its own."""
    found = programs()
    assert found is not None
    with tempfile.TemporaryDirectory(prefix="epochal-browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = found[0]
        for option in (*OPTIONS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(option)
        options.add_argument(f"--force-device-scale-factor={scale}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # A service that is named looks for no driver elsewhere.
        browser = Chrome(options=options, service=Service(found[1], log_output=str(Path(profile, "driver.log"))))
        try:
            yield browser
        finally:
            browser.quit()
