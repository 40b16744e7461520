"""The second phase: one transaction with the messages of an epoch and its mark."""
