"""What users say about buckets, rolling and completion. Pure: no I/O and no clock."""
