"""The page: HTML, CSS and JavaScript in one document, with the data in it. Nothing is loaded from elsewhere.

Values from journals, stores and users reach the page as JSON in an element that is never executed, and the script puts
them into the document as text only. The Content-Security-Policy names the one script and the one style by their
digests: even a value that became markup could run nothing and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files

from epochal._version import __version__
from epochal.cli.console.model import JsonObject

SCRIPTS = ("dom.js", "format.js", "timeline.js", "sections.js", "main.js")
# In a script element these could end it or begin a comment.
ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def document(data: JsonObject, *, live: bool) -> str:
    """The whole page. `live`: it fetches newer data from its own server."""
    fields = {
        "policy": policy(live=live),
        "style": _asset("page.css"),
        "script": _script(),
        "data": embedded({**data, "live": live, "version": __version__}),
    }
    # One pass over the template: what is put in is not searched again.
    parts = _asset("page.html").split("@@")
    return "".join(fields[part] if number % 2 else part for number, part in enumerate(parts))


def embedded(data: JsonObject) -> str:
    r"""JSON that can stand in a script element.

    >>> print(embedded({"name": "</script>"}))
    {"name": "\u003c/script\u003e"}
    """
    return json.dumps(data, allow_nan=False).translate(ESCAPES)


def policy(*, live: bool) -> str:
    """The Content-Security-Policy of the page."""
    allowed = {
        "default-src": "'none'",
        "script-src": f"'{_digest(_script())}'",
        "style-src": f"'{_digest(_asset('page.css'))}'",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


@cache
def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    parts = ["'use strict';", *(_asset(name) for name in SCRIPTS)]
    return "(() => {\n" + "\n".join(parts) + "})();\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
