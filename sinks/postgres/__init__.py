"""PostgreSQL tables. Everything here is written with what `epochal.participant` offers to any author of a sink."""

from epochal.sinks.postgres import failpoints as _failpoints  # noqa: F401  # which registers them

try:
    from epochal.sinks.postgres.sink import PostgresSink
except ModuleNotFoundError as missing:
    if missing.name not in ("psycopg", "pyarrow"):
        raise
    raise ModuleNotFoundError(
        f"PostgreSQL's packages are not installed ({missing.name} is missing): pip install 'epochal[postgres]'",
        name=missing.name,
    ) from None

__all__ = ["PostgresSink"]
