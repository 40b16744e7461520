"""Which changes of columns leave a folder readable: do readers get right what is in files of both kinds? Pure.

Each rule was tried with Spark's own readers (``integration_tests/spark/test_changed_columns.py``). A reader who gives
no schema gets that of one of the files in Parquet, ORC and Avro, whichever Spark takes, and all files must fit it. So
these allow no other type, not even a wider one: Parquet and Avro fail then, ORC gives nulls. In JSON, XML and the names
of folders values are texts, and a schema is inferred from all of them: numbers may become wider, and any other change
makes the whole column a text. CSV has its columns by position.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from epochal.sinks.spark.types import spell

Columns: TypeAlias = Sequence[tuple[str, Any]]  # names and types, as Spark has them in JSON; without nullability

BY_POSITION = ("csv",)
AS_TEXT = ("json", "xml", "csv")
NO_COLUMNS = ("text",)  # a line is a row, whatever its column is called
WHOLE = ("byte", "short", "integer", "long")
DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
FLOATING = ("float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def differences(
    format_: str, before: Columns, now: Columns, *, folders: Collection[str] = (), capitals_count: bool = False
) -> list[str]:
    """What keeps readers from reading both, one text for each column; empty if they can.

    With `capitals_count` the session has ``spark.sql.caseSensitive``: `a` and `A` are two columns then.

    >>> differences("parquet", [("id", "integer")], [("id", "long")])
    ['id: bigint, was int']
    >>> differences("json", [("id", "integer")], [("id", "long"), ("more", "string")])
    []
    """
    if format_ in NO_COLUMNS:
        before, now = ([c for c in columns if c[0] in folders] for columns in (before, now))
    matching = _Matching(format_ in AS_TEXT, capitals_count)
    found = list(matching.differing("", dict(before), dict(now), folders=folders))
    if format_ in BY_POSITION:
        was, is_now = ([name for name, _ in columns if name not in folders] for columns in (before, now))
        if was != is_now and not found:
            found.append(f"{', '.join(is_now)}: were {', '.join(was)}, and {format_} has its columns by position")
    return found


def bare(kind: Any) -> Any:
    """A type without nullability and metadata, which readers do not compare."""
    match kind:
        case {"type": "struct", "fields": fields}:
            return {"type": "struct", "fields": [{"name": f["name"], "type": bare(f["type"])} for f in fields]}
        case {"type": "array", "elementType": element}:
            return {"type": "array", "elementType": bare(element)}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {"type": "map", "keyType": bare(key), "valueType": bare(value)}
        case {"type": "udt", "sqlType": stored}:
            return bare(stored)
    return kind


@dataclass(frozen=True, slots=True)
class _Matching:
    as_text: bool  # values are texts, and a type is inferred from all of them
    capitals_count: bool

    def differing(
        self, where: str, before: Mapping[str, Any], now: Mapping[str, Any], *, folders: Collection[str] = ()
    ) -> Iterator[str]:
        """Columns or fields that both have, matched as the session does."""
        # A session in which capitals counted may have written both `a` and `A`.
        known = {} if self.capitals_count else {name.lower(): name for name in before}
        for name, kind in now.items():
            was = name if name in before else known.get(name.lower())
            if was is None:
                continue  # a reader sees null where a file lacks it
            if was != name:
                yield f"{where}{name}: was spelled {where}{was}"
            else:
                yield from self._types(f"{where}{name}", before[was], kind, as_text=self.as_text or name in folders)

    def _types(self, where: str, before: Any, now: Any, *, as_text: bool) -> Iterator[str]:
        match before, now:
            case {"type": "struct"}, {"type": "struct"}:
                fields = ({field["name"]: field["type"] for field in one["fields"]} for one in (before, now))
                yield from self.differing(f"{where}.", *fields)
            case {"type": "array"}, {"type": "array"}:
                yield from self._types(f"{where}.element", before["elementType"], now["elementType"], as_text=as_text)
            case {"type": "map"}, {"type": "map"}:
                yield from self._types(f"{where}.key", before["keyType"], now["keyType"], as_text=as_text)
                yield from self._types(f"{where}.value", before["valueType"], now["valueType"], as_text=as_text)
            case _ if before != now and not (as_text and _is_wider(before, now)):
                yield f"{where}: {spell(now)}, was {spell(before)}"


def _is_wider(before: Any, now: Any) -> bool:
    """Whether a number's new type holds every value of the old one.

    >>> _is_wider("integer", "decimal(12,2)"), _is_wider("integer", "decimal(11,2)")
    (True, False)
    """
    if not (isinstance(before, str) and isinstance(now, str)):
        return False
    if now in FLOATING:
        return before in (*WHOLE, *FLOATING[: FLOATING.index(now)])
    if now in WHOLE:
        return before in WHOLE[: WHOLE.index(now)]
    digits, wanted = _digits(now), _digits(before)
    return (
        digits is not None and wanted is not None and all(has >= need for has, need in zip(digits, wanted, strict=True))
    )


def _digits(kind: str) -> tuple[int, int] | None:
    """How many digits a number has before the point and after it; None for other types."""
    if kind in DIGITS:
        return DIGITS[kind], 0
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]) - int(found[2]), int(found[2])) if found else None
