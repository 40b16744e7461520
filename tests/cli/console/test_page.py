"""The page holds whatever a journal, a store or a user says as data, never as markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from epochal.cli.console.page import document
from tests.cli.console import gallery
from tests.cli.scene import Scene

HOSTILE = "</script><script>window.broken = 1</script><!-- @@data@@ <img src=x onerror=alert(1)> & \u2028 \ud800"


class Page(HTMLParser):
    """The elements of a page, as a browser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {}
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.contents.setdefault(tag, []).append("")
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.contents[self.inside][-1] += data

    @property
    def data(self) -> Any:
        return json.loads(self.contents["script"][0])

    @property
    def policy(self) -> str:
        return next(a["content"] or "" for tag, a in self.tags if "http-equiv" in a)


def hostile() -> dict[str, Any]:
    return {"at": 0.0, "streams": [{"checkpoint": HOSTILE, "error": HOSTILE, "snapshot": None, "audit": None}]}


@pytest.mark.parametrize("live", [True, False])
def test_a_hostile_name_stays_data(live: bool) -> None:
    page = Page(document(hostile(), live=live))

    assert [tag for tag, _ in page.tags].count("script") == 2  # the data, and the program
    assert "img" not in [tag for tag, _ in page.tags]
    assert page.data["streams"][0]["checkpoint"] == HOSTILE


def test_the_page_loads_nothing_and_its_policy_allows_only_its_own_script_and_style() -> None:
    text = document(hostile(), live=False)
    page = Page(text)

    def digest(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["script-src"] == digest(page.contents["script"][1])
    assert rules["style-src"] == digest(page.contents["style"][0])
    assert not [attributes for _, attributes in page.tags if attributes.keys() & {"src", "href", "style", "onclick"}]
    assert set(re.findall(r"https?://[^\s'\"]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_script_never_parses_markup() -> None:
    program = Page(document(hostile(), live=True)).contents["script"][1]

    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|srcdoc", program)


def test_a_report_holds_every_stream_and_the_ones_that_cannot_be_read(scene: Scene) -> None:
    running = gallery.running(scene.root)
    nowhere = scene.root / "nowhere"
    file = scene.root / "report.html"

    answer = scene.epochal("report", str(running), str(nowhere), "-o", str(file))

    assert answer.code == 1
    assert "there is no such folder" in answer.err
    first, second = Page(file.read_text()).data["streams"]
    assert first["snapshot"]["done"] == 45
    assert (first["error"], first["audit"]) == (None, None)
    assert "there is no such folder" in second["error"]
    assert second["snapshot"] is None


def test_a_report_with_an_audit_has_its_result(scene: Scene) -> None:
    running = gallery.running(scene.root)
    file = scene.root / "report.html"

    answer = scene.epochal("report", str(running), "--audit", "-o", str(file), "--json")

    assert (answer.code, answer.json) == (0, {"file": str(file), "streams": 1, "failed": 0})
    (stream,) = Page(file.read_text()).data["streams"]
    assert stream["audit"]["state"] == "done"
    assert stream["audit"]["result"]["verdict"] == "consistent"  # fast: rows are not read
    assert [sink["epochs"] for sink in stream["audit"]["result"]["sinks"]] == [46, 46, 46]


def test_a_report_can_go_to_a_pipe(scene: Scene) -> None:
    scene.run(scene.driver(), 1)

    answer = scene.command("report", "-o", "-")

    assert answer.out.startswith("<!DOCTYPE html>")
    assert answer.out.rstrip().endswith("</html>")


def test_a_report_that_cannot_be_written_is_one_line(scene: Scene) -> None:
    scene.run(scene.driver(), 1)

    answer = scene.command("report", "-o", str(Path(scene.root, "nowhere", "report.html")))

    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert "nowhere" in answer.err
