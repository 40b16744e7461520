"""The type of plain JSON, for everything that is stored."""

from __future__ import annotations

from typing import TypeAlias

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
