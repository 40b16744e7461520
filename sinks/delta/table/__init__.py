"""The table itself: its state, schema and log, through delta-rs (`native`) or Delta's own code (`jvm`)."""
