"""Phase one: an epoch's rows are encoded and written to files. Nothing reaches the table."""
