"""Text from a store or from data, made safe for a terminal and for a log.

A control character could move the cursor, change the title of the window or hide what stands before it; one that
changes the direction of writing could make a line read as another.
"""

from __future__ import annotations

import re

# C0 and C1, separators of lines, marks of direction, and halves of characters, which no terminal can be sent.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, *, keep: str = "\n\t") -> str:
    r"""The text with control characters as escapes; those in `keep` stay as they are.

    >>> print(printable("red\x1b[31m, and\r over"))
    red\x1b[31m, and\r over
    >>> printable("plain: ä \u00bd")
    'plain: ä ½'
    """
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)
