"""``epochal top``, ``epochal ui`` and ``epochal report``: a stream on a terminal, in a browser, in a file.

All three show the same model. Read in this order: `model` (what is shown), `timeline` and `build` (how it follows from
the status of a stream), `advice` (what to do), `watch` (reading again and again without disturbing the stream), then
`top`, `page`, `server` and `report`. Nothing here writes to a checkpoint, a journal or a store.
"""
