"""Brokers: where they are, what they refuse, and what they say of topics and transactions."""
