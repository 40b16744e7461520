"""Streams by configuration alone: read a file or Spark's settings, check everything, run all streams.

From the settings to a running query, each step a module: `reading` (with `toml_file` and `properties_file`),
`secrets`, `options`, `definition`, `frames`, `checking`, `running`. Up to `secrets` none of them knows Spark.
"""
