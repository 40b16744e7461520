"""What is asked of a cluster, and tested before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from epochal.txn.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of `servers.cassandra`."""

    nodes: int = 1
    settings: Mapping[str, object]
    folder: Path | None = None
    port: int | None = None
    java_options: Sequence[str] = ()
    timeout: float = 120.0

    def __post_init__(self) -> None:
        faults = []
        if self.nodes not in (1, 3):
            faults.append(f"nodes={self.nodes}: it can be 1 or 3")
        if self.port is not None and not 0 < self.port < 65_536:
            faults.append(f"port={self.port}: it must be from 1 to 65535")
        if not self.timeout > 0:
            faults.append(f"timeout={self.timeout}: it must be more than 0 seconds")
        if faults:
            raise OptionError("cassandra", faults)

    @property
    def are_special(self) -> bool:
        """Whether a server that somebody else runs would not do."""
        return self.nodes > 1 or bool(self.settings or self.java_options) or bool(self.folder or self.port)
