"""What was measured on this machine, in a file of the user's cache: ``recovery-rates.json``.

``epochal plan-recovery`` writes it, and every prediction uses it. Without it, or with a file that cannot be read,
predictions use guesses and say so.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from epochal.spark_plugins.jars import cache_root
from epochal.spark_plugins.recovery.knobs import CommitCosts, Costs
from epochal.spark_plugins.recovery.model import Rates, StoreRates
from epochal.spark_plugins.recovery.names import Provider
from epochal.txn.model import Json

FORMAT = 1


def place() -> Path:
    """The file."""
    return cache_root() / "recovery-rates.json"


def load() -> Rates:
    """The rates of this machine; guesses if none were measured."""
    found = load_all()
    return Rates() if found is None else found[0]


def load_all() -> tuple[Rates, Costs] | None:
    """The rates of this machine and what commits cost; None if they were not measured."""
    try:
        value = json.loads(place().read_text(encoding="utf-8"))
        return decode(value), decode_costs(value)
    except (OSError, ValueError):
        return None


def save(rates: Rates, costs: Costs) -> None:
    """Keep them for later predictions."""
    file = place()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    temporary.write_text(json.dumps({**encode(rates), "costs": encode_costs(costs)}, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, file)


def encode(rates: Rates) -> dict[str, Json]:
    """The rates as JSON."""
    return {
        "format": FORMAT,
        "measured": rates.measured,
        "session": rates.session,
        "query": rates.query,
        "epoch": rates.epoch,
        "uploaded": rates.uploaded,
        "stores": {
            provider.value: {"opened": own.opened, "loaded": own.loaded, "replayed": own.replayed}
            for provider, own in rates.stores.items()
        },
    }


def decode(value: Json) -> Rates:
    """The rates that JSON holds; ValueError if it is something else."""
    try:
        if not isinstance(value, dict) or value["format"] != FORMAT:
            raise ValueError("rates of another format")
        stored: Any = value["stores"]  # else AttributeError or TypeError below
        stores = {
            Provider(name): StoreRates(**{key: _positive(own[key]) for key in ("opened", "loaded", "replayed")})
            for name, own in stored.items()
        }
        if set(stores) != set(Provider):
            raise ValueError("rates of some providers only")
        parts = {key: _positive(value[key]) for key in ("session", "query", "epoch", "uploaded")}
        return Rates(**parts, stores=stores, measured=str(value["measured"]))
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"not rates of recoveries: {fault!r}") from None


def encode_costs(costs: Costs) -> dict[str, Json]:
    """What commits cost as JSON."""
    return {
        **{name: {"store": own.store, "row": own.row} for name, own in _commits(costs).items()},
        "rewritten": costs.rewritten,
        "row_bytes": {provider.value: size for provider, size in costs.row_bytes.items()},
    }


def decode_costs(value: Json) -> Costs:
    """What commits cost, from JSON; ValueError if it is something else."""
    found: Any = value
    try:
        own = found["costs"]
        commits = {
            name: CommitCosts(store=_positive(own[name]["store"]), row=_positive(own[name]["row"]))
            for name in _commits(Costs())
        }
        sizes = {Provider(name): _positive(size) for name, size in own["row_bytes"].items()}
        return Costs(**commits, rewritten=_positive(own["rewritten"]), row_bytes=sizes)
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"not costs of commits: {fault!r}") from None


def _commits(costs: Costs) -> dict[str, CommitCosts]:
    return {"changelog": costs.changelog, "snapshots": costs.snapshots, "hdfs_backed": costs.hdfs_backed}


def _positive(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e15:
        raise ValueError(f"a rate above 0, not {value!r}")
    return float(value)
