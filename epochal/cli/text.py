"""Text output: aligned tables, sizes, and colours on a terminal."""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import re
import sys
from collections.abc import Collection, Sequence
from typing import TextIO

from epochal.txn.printable import printable

CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "dim": "2"}
_STYLE = re.compile(rf"(\033\[(?:0|{'|'.join(CODES.values())})m)")


# What replaces characters that a terminal cannot show. Of all others it gets the escape.
PLAIN = {"\u2026": "...", "\u25a0": "#", "\u25cf": "*", "\u2717": "x", "\u00b7": "."}


def _in_plain(fault: UnicodeError) -> tuple[str | bytes, int]:
    r"""For `codecs`: characters that an encoding does not have.

    >>> codecs.register_error("doctest-plain", _in_plain)
    >>> "gr\u00f6\u00dfe\u2026".encode("ascii", "doctest-plain")
    b'gr\\xf6\\xdfe...'
    """
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    lost = fault.object[fault.start : fault.end]
    return "".join(PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode() for char in lost), fault.end


def print_in_any_encoding() -> None:
    """Let no character that stdout or stderr cannot encode end a command."""
    codecs.register_error("epochal-plain", _in_plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="epochal-plain")


def has_colours(stream: TextIO) -> bool:
    """Whether to use colours there; respects https://no-color.org."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text in a style, without control characters; without the style where colours are off."""
    text = printable(text)
    if not text or not has_colours(stream or sys.stdout):
        return text
    return f"\033[{CODES[style]}m{text}\033[0m"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> str:
    """An aligned table; the columns named in `right` are set flush right.

    >>> print(table(["SINK", "EPOCH"], [["files", "7"], ["lake", "12"]], right=["EPOCH"]))
    SINK   EPOCH
    files      7
    lake      12
    """
    rows = [[printable(cell.replace("\n", " "), keep="") for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    lines = []
    for number, row in enumerate((headers, *rows)):
        cells = [
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        lines.append(paint(line, "bold") if number == 0 else line)
    return "\n".join(lines)


def key_values(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one pair a line.

    >>> print(key_values([("journal", "/data/j"), ("base", "0")]))
    journal  /data/j
    base     0
    """
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{paint(name.ljust(width), 'dim')}  {printable(value)}" for name, value in pairs)


def show(text: str, stream: TextIO | None = None) -> None:
    """Print text for people. Names, values and errors in it come from users, stores and data: nothing of them controls
    the terminal, but for the styles of `paint`.
    """
    to = stream or sys.stdout
    safe = "".join(
        part if has_colours(to) and _STYLE.fullmatch(part) else printable(part) for part in _STYLE.split(text)
    )
    print(safe, file=to, flush=True)


class SafeFormatter(logging.Formatter):
    """Log lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def print_json_error(fault: BaseException, code: int, message: str | None = None) -> None:
    """Print an error as JSON instead of the answer: its class, its message and the exit code."""
    error = {"type": type(fault).__name__, "message": message or str(fault), "exit_code": code}
    print(json.dumps({"error": error}, indent=2))


def print_answer(text: str) -> None:
    """Print what a command found. A reader that closes the pipe early does not change the command's exit code."""
    try:
        show(text)
    except BrokenPipeError:
        stop_printing()


def stop_printing() -> None:
    """The reader closed the pipe: the interpreter must not try to flush stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def size(count: int) -> str:
    """A number of bytes.

    >>> size(512), size(20_480), size(3_500_000)
    ('512 bytes', '20.5 kB', '3.5 MB')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "epoch"), counted(2, "epoch")
    ('1 epoch', '2 epochs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(numbers: Sequence[int]) -> str:
    """Epoch numbers as a list or a range.

    >>> listed([7]), listed([7, 8, 9]), listed([7, 9])
    ('7', '7 to 9', '7, 9')
    """
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
