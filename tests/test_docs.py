"""The pages for people: their links lead somewhere, and so do the commands and tests that they name."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

ROOT = Path(__file__).parent.parent
APPLICATIONS = ("fraud.py", "graph.py")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            broken.append(link)

    assert broken == []


def test_every_page_of_the_docs_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        links = re.findall(r"\]\(([^)\s#]+\.md)[^)\s]*\)", prose(page))
        waiting += {(page.parent / link).resolve() for link in links if "://" not in link} - reached

    assert set(PAGES) <= reached


def test_every_benchmark_has_its_figures_in_the_docs_with_the_command_that_makes_them() -> None:
    named = set(re.findall(r"`python -m benchmarks\.(\w+)", (ROOT / "docs" / "benchmarks.md").read_text()))
    runnable = {
        file.stem for file in (ROOT / "benchmarks").glob("*.py") if 'if __name__ == "__main__"' in file.read_text()
    }

    assert named == runnable


def test_every_test_that_the_list_of_attacks_names_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.(?:py|txt))`", (ROOT / "docs" / "tried.md").read_text()))
    homes = (ROOT, ROOT / "integration_tests", ROOT / "tests" / "txn")

    assert [name for name in sorted(named) if not any((home / name).exists() for home in homes)] == []


def same_code(block: str, source: str) -> bool:
    """Whether a block is in a source, whatever the formatter does about empty lines."""
    return re.sub(r"\n{2,}", "\n\n", block) in re.sub(r"\n{2,}", "\n\n", source)


def test_the_code_of_the_page_about_sinks_is_that_of_the_example() -> None:
    home = ROOT / "examples" / "sqlite-sink"
    files = ("epochal_sqlite.py", "test_epochal_sqlite.py", "pyproject.toml")
    sources = "\n".join((home / name).read_text() for name in files)
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", (ROOT / "docs" / "write-a-sink.md").read_text(), re.DOTALL)
    found = [any(same_code(indent(block, " " * n), sources) for n in (0, 4, 8)) for block in blocks]

    assert [block for block, there in zip(blocks, found, strict=True) if not there] == []
    assert len(blocks) == 12
    for name in files:  # whoever has the docs alone has all of it
        assert (home / name).read_text() in blocks


def test_every_example_is_in_the_table_of_examples_and_all_that_it_links_exists() -> None:
    home = ROOT / "examples"
    text = (home / "README.md").read_text()
    linked = re.findall(r"\]\(([^)\s]+)\)", text)

    assert [link for link in linked if not (home / link).exists()] == []
    assert [path.name for path in sorted(home.iterdir()) if path.name not in text] == []


def test_every_example_can_be_read_in_a_minute_and_an_application_in_two() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}

    assert {name: lines for name, lines in lengths.items() if lines > (155 if name in APPLICATIONS else 75)} == {}
