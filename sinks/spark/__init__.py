"""What the sinks ask of Spark: settings, names of its files, counts and digests of rows."""
