"""The page in a real browser: an epoch in doubt, a store that is held, an audit, a report; by mouse and by keyboard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from epochal.cli import main
from epochal.txn.live import LiveState
from tests.cli.console import browser as chromium
from tests.cli.console import gallery
from tests.cli.console.serving import serving
from tests.cli.scene import QUERY, Scenery
from tests.spark_plugins.recovery.written import stateful

pytestmark = pytest.mark.skipif(
    chromium.programs() is None,
    reason="no browser: install chromium and chromedriver (Debian: apt-get install chromium chromium-driver), or name "
    "them by EPOCHAL_CHROMIUM and EPOCHAL_CHROMEDRIVER",
)
HOSTILE = "<img src=x onerror=window.broken=1>"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with chromium.started() as browser:
        yield browser


@pytest.fixture
def browser(chrome: Chrome) -> Iterator[Chrome]:
    """The browser; at the end no script has failed and nothing was blocked."""
    chrome.get("about:blank")
    messages(chrome)
    yield chrome
    assert messages(chrome) == []


def messages(chrome: Chrome) -> list[str]:
    """What the browser has logged since the last call."""
    entries: list[dict[str, Any]] = chrome.get_log("browser")  # type: ignore[no-untyped-call]
    return [str(entry["message"]) for entry in entries]


def wait_for(what: Callable[[], Any]) -> Any:
    """Wait until something is true. The page may replace an element while it is looked at."""
    deadline = time.monotonic() + 60
    while True:
        try:
            if found := what():
                return found
        except StaleElementReferenceException:
            pass
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def one(browser: Chrome, selector: str) -> WebElement:
    return wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, selector))[0]  # type: ignore[no-any-return]


def text(browser: Chrome, selector: str = "main") -> str:
    return wait_for(lambda: one(browser, selector).text)  # type: ignore[no-any-return]


def click(browser: Chrome, selector: str) -> None:
    """Click what is there now: the page draws itself again each second."""
    for tries_left in reversed(range(5)):
        try:
            element = one(browser, selector)
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return
        except StaleElementReferenceException:
            if not tries_left:
                raise


def epoch(number: int, sink: str) -> str:
    return f'.epoch[data-epoch="{number}"][data-sink="{sink}"]'


def test_a_running_stream_has_a_lane_a_sink_and_a_column_an_epoch(browser: Chrome, tmp_path: Path) -> None:
    with serving(gallery.running(tmp_path)) as server:
        browser.get(server.url)

        assert "epoch 45 is visible everywhere" in text(browser, ".headline")
        assert len(browser.find_elements(By.CSS_SELECTOR, ".lane")) == 3
        assert len(browser.find_elements(By.CSS_SELECTOR, ".lane .epoch.visible")) == 3 * 46
        assert not browser.find_element(By.ID, "streams").is_displayed()  # there is only one
        assert browser.find_elements(By.CSS_SELECTOR, "[data-doubt], [data-held]") == []
        ActionChains(browser).move_to_element(one(browser, epoch(44, "lake"))).perform()
        hint = wait_for(lambda: "epoch 44 in lake" in text(browser, ".hint") and text(browser, ".hint"))
        assert "Spark\u2019s checkpoint" in hint


def test_an_epoch_in_doubt_is_found_explained_and_gone_when_the_query_has_decided(
    browser: Chrome, tmp_path: Path
) -> None:
    (clicks,) = gallery.dead(tmp_path, "clicks")
    with serving(gallery.running(tmp_path), clicks) as server:
        browser.get(server.url)
        click(browser, '[data-key="stream 1"]')

        card = text(browser, '[data-doubt="17"]')
        assert "Epoch 17 is in doubt" in card
        assert "Start the query again" in card
        assert "generation 2, prepared" in card
        click(browser, '[data-key="show doubt 17"]')
        details = text(browser, "#epoch-details")
        assert "Epoch 17" in details
        assert "prepared, in doubt" in details
        assert wait_for(lambda: browser.switch_to.active_element.get_attribute("id") == "epoch-details")

        scene = gallery.Painted(tmp_path, "clicks")
        driver = scene.driver(scene.auditable("archive"), scene.auditable("lake"))
        scene.rows = tuple(range(300))
        scene.decide(driver, 17)
        driver.settle()

        wait_for(lambda: not browser.find_elements(By.CSS_SELECTOR, '[data-doubt="17"]'))
        wait_for(lambda: "visible" in text(browser, "#epoch-details .phase"))
        assert len(browser.find_elements(By.CSS_SELECTOR, epoch(17, "lake") + ".visible")) == 1


def test_a_held_store_is_named_with_its_cause_and_the_page_follows_when_it_is_back(
    browser: Chrome, tmp_path: Path
) -> None:
    payments = gallery.held(tmp_path)
    with serving(payments) as server:
        browser.get(server.url)

        card = text(browser, '[data-held="12"]')
        assert gallery.REASON in card
        assert "tries again by itself" in card
        click(browser, epoch(12, "ledger"))
        rows = [row.text for row in one(browser, "#epoch-details tbody").find_elements(By.TAG_NAME, "tr")]
        assert [row.split()[:2] for row in rows] == [["lake", "visible"], ["ledger", "held"]]

        assert main(["recover", str(payments)]) == 0
        scene = gallery.Painted(tmp_path, "payments")
        gallery.tell(scene.journal, time.time() + gallery.FRESH, state=LiveState.IDLE, epoch=12, sequence=2)

        wait_for(lambda: not browser.find_elements(By.CSS_SELECTOR, '[data-held="12"]'))
        wait_for(lambda: "epoch 12 is visible everywhere" in text(browser, ".headline"))


def test_an_audit_is_run_by_a_click_and_names_what_differs(browser: Chrome, tmp_path: Path) -> None:
    orders = gallery.running(tmp_path)
    with serving(orders) as server:
        browser.get(server.url)
        assert "Not audited" in text(browser, "#audit-result")
        click(browser, '[data-key="audit"]')

        wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "#audit-result .badge"))
        assert "up to epoch 45; fast audit" in text(browser, "#audit-result")
        assert f"epochal audit {orders}" in text(browser)

        next((tmp_path / "orders-targets" / "lake").glob("000000000044.*")).unlink()
        click(browser, '[data-key="audit"]')

        wait_for(lambda: browser.find_elements(By.CSS_SELECTOR, "#audit-result .badge.error"))
        assert "lake: epoch 44" in text(browser, "#audit-result .findings")


def test_epochs_are_reached_by_the_keyboard_alone(browser: Chrome, tmp_path: Path) -> None:
    with serving(gallery.running(tmp_path)) as server:
        browser.get(server.url)
        one(browser, epoch(45, "archive")).send_keys(Keys.ARROW_LEFT)
        browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        assert browser.switch_to.active_element.get_attribute("data-key") == "epoch 44 lake"
        browser.switch_to.active_element.send_keys(Keys.ENTER)

        assert text(browser, "#epoch-title") == "Epoch 44"
        time_before = text(browser, "#freshness")
        wait_for(lambda: text(browser, "#freshness") != time_before)  # it was drawn again
        assert browser.switch_to.active_element.get_attribute("data-key") == "epoch 44 lake"
        browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        wait_for(lambda: not browser.find_elements(By.ID, "epoch-details"))


def test_open_parts_and_staged_data_are_listed(browser: Chrome, tmp_path: Path) -> None:
    with serving(*gallery.dead(tmp_path, "sessions", "clicks")) as server:
        browser.get(server.url)

        assert "day=2026-11-17/country=<b>IT</b>" in text(browser, "#section-open-parts + p + .scroll")
        settled = text(browser, ".facts")
        assert "epoch 8" in settled
        assert "open parts cannot be read yet" in settled
        assert "in every sink" not in settled.lower()
        click(browser, '[data-key="stream 1"]')
        click(browser, 'details[data-key="leftovers"] summary')
        wait_for(lambda: "this may be the only copy" in text(browser))


def test_what_sparks_operators_keep_is_listed(browser: Chrome, tmp_path: Path) -> None:
    scene = Scenery(tmp_path)
    scene.run(scene.driver(), 3)
    stateful(scene.checkpoint, QUERY)
    file = tmp_path / "report.html"
    assert main(["report", "-o", str(file), str(scene.checkpoint)]) == 0

    browser.get(file.as_uri())

    shown = text(browser)
    assert "stateStoreSave" in shown
    assert "40 rows, " in shown
    assert "A recovery would take" in shown


def test_a_report_needs_no_server_and_looks_the_same(browser: Chrome, tmp_path: Path) -> None:
    orders, (clicks,) = gallery.running(tmp_path), gallery.dead(tmp_path, "clicks")
    file = tmp_path / "report.html"
    assert main(["report", "--audit", "-o", str(file), str(orders), str(clicks)]) == 0

    browser.get(file.as_uri())

    assert "report of" in text(browser, "#freshness")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".lane .epoch.visible")) == 3 * 46
    assert "fast audit" in text(browser, "#audit-result")
    assert browser.find_elements(By.CSS_SELECTOR, '[data-key="audit"]') == []
    click(browser, '[data-key="stream 1"]')
    click(browser, '[data-key="show doubt 17"]')
    assert "Start the query again" in text(browser, "#epoch-details")


def test_names_from_users_and_data_are_text(browser: Chrome, tmp_path: Path) -> None:
    scene = Scenery(tmp_path / "targets", str(tmp_path / "a<script>window.broken=1<" / "b&amp;"))
    scene.run(scene.driver(scene.target(HOSTILE)), 2)
    with serving(scene.checkpoint) as server:
        browser.get(server.url)
        click(browser, ".epoch")

        assert HOSTILE in text(browser, "#epoch-details")
        assert text(browser, "h2") == "b&amp;"
        assert browser.execute_script("return window.broken") is None
        assert browser.find_elements(By.TAG_NAME, "img") == []


def background(browser: Chrome) -> str:
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_light_and_dark_follow_the_system_until_the_user_chooses(browser: Chrome, tmp_path: Path) -> None:
    with serving(gallery.held(tmp_path)) as server:
        browser.get(server.url)
        seen = {}
        for scheme in ("light", "dark"):
            browser.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            )
            seen[scheme] = background(browser)
        assert seen["light"] != seen["dark"]

        click(browser, "#theme")
        assert (text(browser, "#theme"), background(browser)) == ("Theme: light", seen["light"])
        browser.refresh()
        assert (text(browser, "#theme"), background(browser)) == ("Theme: light", seen["light"])
        click(browser, "#theme")
        assert (text(browser, "#theme"), background(browser)) == ("Theme: dark", seen["dark"])
        click(browser, "#theme")
        assert text(browser, "#theme") == "Theme: auto"
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_scrolls_down_and_never_sideways(browser: Chrome, tmp_path: Path) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    with serving(gallery.held(tmp_path), gallery.running(tmp_path)) as server:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        try:
            browser.get(server.url)
            click(browser, epoch(12, "ledger"))
            text(browser, "#epoch-details")

            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        finally:
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_page_whose_server_is_gone_says_so_and_keeps_what_it_has(chrome: Chrome, tmp_path: Path) -> None:
    with serving(gallery.running(tmp_path)) as server:
        chrome.get(server.url)
        text(chrome, ".headline")

    wait_for(lambda: one(chrome, "#offline").is_displayed())
    assert "does not answer" in text(chrome, "#offline")
    assert "epoch 45 is visible everywhere" in text(chrome, ".headline")
