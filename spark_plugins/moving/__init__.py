"""Moving a stream as a whole: savepoints of it, and streams made from savepoints.

`take` copies a checkpoint with its journal at one epoch, while the query runs or not. `restore` makes a checkpoint of
that copy in which the stream goes on, or with `fork` one that begins another stream. Read in this order: `layout` and
`state_files` (what of a checkpoint belongs to an epoch), `manifest`, `store` (where savepoints are), `origin` and
`taking`; then `planning`, `closing` and `restoring`.
"""
