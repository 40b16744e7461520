"""cassandra.yaml of a small node. It is written as JSON, which is valid YAML and needs no quoting rules.

Settings that decide how Cassandra behaves keep their defaults: batch limits, consistency, compaction. Settings that
only decide how much memory and disk it uses are small.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SMALL: Mapping[str, object] = {
    "memtable_heap_space": "128MiB",
    "memtable_offheap_space": "128MiB",
    "commitlog_segment_size": "16MiB",
    "commitlog_total_space": "256MiB",
    "concurrent_reads": 8,
    "concurrent_writes": 16,
    "concurrent_counter_writes": 8,
    "concurrent_compactors": 1,
    "file_cache_enabled": False,
    "key_cache_size": "8MiB",
    "counter_cache_size": "4MiB",
    "prepared_statements_cache_size": "10MiB",
    "networking_cache_size": "16MiB",
}
PATIENT: Mapping[str, object] = {
    # A loaded machine that runs tests must not look like a cluster that is down.
    "write_request_timeout": "10s",
    "counter_write_request_timeout": "10s",
    "cas_contention_timeout": "5s",
    "read_request_timeout": "10s",
    "range_request_timeout": "20s",
    "request_timeout": "20s",
}
COMMON: Mapping[str, object] = {
    "cluster_name": "epochal",
    "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
    "endpoint_snitch": "SimpleSnitch",
    "dynamic_snitch": False,
    "auto_bootstrap": False,  # a new cluster has nothing to stream
    "num_tokens": 1,
    # With the default, periodic, a kill -9 loses acknowledged rows.
    "commitlog_sync": "batch",
    "auto_snapshot": False,
    "disk_failure_policy": "stop",
    "commit_failure_policy": "stop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """What differs between the nodes of a cluster."""

    number: int
    nodes: int
    listen: str
    seed: str
    storage_port: int
    port: int
    folder: str
    # Where clients reach it: the listen address, unless it is in a container.
    rpc: str
    reached: str = ""


def settings(place: NodePlace, given: Mapping[str, object]) -> dict[str, object]:
    """All settings of a node; the given ones override the others."""
    reached = {"broadcast_rpc_address": place.reached} if place.reached else {}
    return {
        **COMMON,
        **SMALL,
        **PATIENT,
        "hinted_handoff_enabled": place.nodes > 1,
        # Fixed and evenly spaced: with random tokens a node waits for the others before it joins.
        "initial_token": str(-(2**63) + 1 + (2**64 // place.nodes) * place.number),
        "listen_address": place.listen,
        "rpc_address": place.rpc,
        **reached,
        "storage_port": place.storage_port,
        "native_transport_port": place.port,
        "seed_provider": [
            {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": place.seed}]}
        ],
        "data_file_directories": [f"{place.folder}/data"],
        "commitlog_directory": f"{place.folder}/commitlog",
        "saved_caches_directory": f"{place.folder}/saved_caches",
        "hints_directory": f"{place.folder}/hints",
        "cdc_raw_directory": f"{place.folder}/cdc_raw",
        **given,
    }


def text(values: Mapping[str, object]) -> str:
    """The content of the file. A `Path` among the values, such as a key store, is written as text."""

    def plain(value: object) -> str:
        if isinstance(value, Path):
            return str(value)
        raise TypeError(f"cassandra.yaml cannot hold {value!r}")

    return json.dumps(values, indent=1, default=plain) + "\n"


def has_tls(given: Mapping[str, object]) -> bool:
    """Whether clients must use TLS."""
    options = _encryption(given)
    return bool(options.get("enabled")) and not options.get("optional")


def asks_for_certificates(given: Mapping[str, object]) -> bool:
    """Whether clients must present a certificate."""
    return has_tls(given) and _encryption(given).get("require_client_auth", False) in (True, "true", "required")


def _encryption(given: Mapping[str, object]) -> Mapping[str, object]:
    options = given.get("client_encryption_options", {})
    return options if isinstance(options, Mapping) else {}
