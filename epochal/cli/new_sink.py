"""``epochal new-sink``: a package with a sink of one's own, which works and passes the contract from the start.

What it writes is `examples/sqlite-sink` with other names. A wheel has that folder as `sqlite_sink` beside this module.
"""

from __future__ import annotations

import json
import keyword
import os
import re
import shlex
import shutil
from importlib.resources import files
from pathlib import Path

from epochal.cli.text import paint, print_answer
from epochal.sinks.config import kinds
from epochal.txn.errors import OptionError
from epochal.txn.model import Json

_PACKAGED = files("epochal.cli") / "sqlite_sink"
TEMPLATE = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "examples" / "sqlite-sink"
FILES = ("README.md", "epochal_sqlite.py", "orders_to_sqlite.py", "pyproject.toml", "test_epochal_sqlite.py")
LONGEST = 40
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_KIND = re.compile(r"sqlite(?![3_])")  # not those of the standard library: sqlite3, sqlite_errorname


def run(name: str, folder: str | None, *, as_json: bool) -> int:
    """Write the package, and say how to go on."""
    place = f"epochal-{name}" if folder is None else folder
    # A name that is none names no folder either.
    faults = [*name_faults(name), *(folder_faults(place) if folder is not None or _NAME.fullmatch(name) else [])]
    if faults:
        raise OptionError("epochal new-sink", faults)
    written = write(name, Path(place))
    print_answer(json.dumps(to_json(name, place, written), indent=2) if as_json else to_text(name, place, written))
    return 0


def name_faults(name: str) -> list[str]:
    """What keeps a name from being that of a kind of sink, a module and a package."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST:
        words = "lower-case letters and digits, with single '-' or '_' between them, and a letter first"
        return [f"NAME={name!r}: {words}; at most {LONGEST} characters"]
    faults = []
    if keyword.iskeyword(name):
        faults.append(f"NAME={name!r}: a word of Python's own; choose another one")
    if same := [kind for kind in kinds.kinds() if _module(kind) == _module(name)]:
        faults.append(
            f"NAME={name!r}: there is a kind of sinks {', '.join(map(repr, same))} already; choose another name"
        )
    return faults


def folder_faults(folder: str) -> list[str]:
    """What keeps a folder from being made."""
    if os.path.lexists(folder or "."):
        return [f"{folder or repr(folder)}: is there already; name a new folder by --folder"]
    above = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(above):
        return [f"{folder}: there is no folder {above}; make it first"]
    return []


def renamed(text: str, name: str) -> str:
    """A text of the example, for a sink of another name.

    >>> renamed("import sqlite3; from epochal_sqlite import SqliteSink  # type=sqlite", "my-queue")
    'import sqlite3; from epochal_my_queue import MyQueueSink  # type=my-queue'
    """
    camel = "".join(part.capitalize() for part in _module(name).split("_"))
    text = text.replace("SqliteSink", f"{camel}Sink")
    text = re.sub(f"(?<=_){_KIND.pattern}", _module(name), text)
    return re.sub(f"(?<!_){_KIND.pattern}", name, text)


def write(name: str, folder: Path) -> list[str]:
    """Write the package; the names of its files. All of it, or nothing."""
    texts = {renamed(file, name): renamed((TEMPLATE / file).read_text(encoding="utf-8"), name) for file in FILES}
    folder.mkdir()
    try:
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return [*texts]


def to_json(name: str, folder: str, written: list[str]) -> dict[str, Json]:
    """What was written, as JSON."""
    return {
        "kind": name,
        "package": f"epochal-{name}",
        "module": f"epochal_{_module(name)}",
        "folder": os.path.abspath(folder),
        "files": [*written],
    }


def to_text(name: str, folder: str, written: list[str]) -> str:
    """What was written, and the next steps."""
    # pip must take it for a path, not for the name of a package.
    there = shlex.quote(folder if "/" in folder else f"./{folder}")
    return "\n".join(
        [
            paint(f"{folder}: a sink of the kind {name}. It writes to SQLite until you put your store there", "green"),
            *(f"  {file}" for file in written),
            "next:",
            f"  pip install -e {there} pytest",
            f"  pytest {there}",
            "then step by step as its README.md says",
        ]
    )


def _module(name: str) -> str:
    return name.replace("-", "_")
