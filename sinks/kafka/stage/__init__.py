"""The first phase: rows become messages, which are checked and written to files."""
