"""Phase two: the staged rows go into the table, and the ledger records the epoch."""
