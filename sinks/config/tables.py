"""The tables of options in the docs, from the declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from epochal.sinks.config.declaring import REQUIRED, Declaration, declarations

HEAD = ("| option | type | default | meaning |", "|---|---|---|---|")


def table_of(kind: Callable[..., Any]) -> str:
    """The options of a class as a Markdown table."""
    return "\n".join([*HEAD, *map(_line, declarations(kind).values())]) + "\n"


def _line(one: Declaration) -> str:
    cells = (f"`{one.name}`", one.option.shown_type or _type(one), one.option.shown_default or _default(one))
    return f"| {' | '.join(cells)} | {one.option.doc} |".replace("|  |", "| |")


def _type(one: Declaration) -> str:
    words = [f'`"{word}"`' for word in one.words]
    names = {str: "text", bool: "`True`, `False`", int: "number", float: "number"}
    plain = [names[kind] for kind in one.types if kind in names]
    group = [f"`{one.group.__name__}`"] if one.group is not None else []
    if one.is_mapping:
        plain.append("dictionary of texts")
    elif not (words or plain or group):
        plain.append("list of columns")
    return _listed([*words, *dict.fromkeys(plain), *group])


def _default(one: Declaration) -> str:
    if one.default is REQUIRED:
        return ""
    if one.default is None or one.default == ():
        return "none"
    if one.group is not None and isinstance(one.default, one.group):
        return f"`{one.group.__name__}()`"
    if isinstance(one.default, tuple):
        return f"`{list(one.default)!r}`".replace("'", '"')
    return f'`"{one.default}"`' if isinstance(one.default, str) else f"`{one.default!r}`"


def _listed(parts: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
