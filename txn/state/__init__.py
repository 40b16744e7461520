"""State that sinks keep over epochs: typed for participants, flat and sharded on disk, one version an epoch in memory.

Read in this order:

1. What participants see: `typed` (value, list and map by name), on the flat names of `keys`.
2. In memory: `versions` (the state after each epoch, without copies).
3. On disk: `segments` (immutable files of many entries), `shards` (which entry belongs where; partition and merge),
   `store` (write and restore them).
4. Over time: `folding` (records become segments, segments are merged), `folding_plan` (which), `policy` (when).
"""
