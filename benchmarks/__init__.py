"""Benchmarks against a peer in the same run. Compare ratios, not seconds: machines are noisy."""
