"""``epochal schema``: the JSON schema of what a command prints with ``--json``."""

from __future__ import annotations

from importlib.resources import files

FOLDER = files("epochal.cli") / "schemas"
ENDING = ".schema.json"


def names() -> list[str]:
    """The commands that have a schema, and ``error`` for what replaces the answer of a command that fails."""
    return sorted(entry.name.removesuffix(ENDING) for entry in FOLDER.iterdir() if entry.name.endswith(ENDING))


def text_of(name: str) -> str:
    """The schema, as JSON."""
    return (FOLDER / f"{name}{ENDING}").read_text(encoding="utf-8")


def run(name: str) -> int:
    """Print it."""
    print(text_of(name), end="")
    return 0
