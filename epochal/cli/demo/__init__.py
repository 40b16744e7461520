"""``epochal demo``: exactly-once under kill -9, beside a plain foreachBatch under the very same kills.

A driver process streams orders with two queries, one through epochal and one with a plain append.
This process watches it from outside, kills its whole process group in the worst moments, starts it
again until it ends, and then counts the rows in the files.
"""
