"""The protocol: two-phase commit bound to streaming epochs. No Spark, no store, standard library only.

Read in this order: `model` (the words), `states` (what may follow what), `records` and `journal`
(what is on disk), `view` (the journal folded), `plan` (what is left to do), `guard` (what is
refused at a start), `landing` (and at a commit), `coordinator` (the steps), `settler` (patience).
"""
