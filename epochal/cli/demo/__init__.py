"""``epochal demo``: exactly-once under kill -9, next to a plain foreachBatch under the same kills.

A driver process streams orders with two queries, one through epochal and one with a plain append.
This process watches it from outside, kills its whole process group at the worst moments, restarts it
until it ends, and then counts the rows in the files.
"""
