"""The protocol: two-phase commit bound to streaming epochs. No Spark, no store, standard library only.

Read in this order:

1. The words: `model`, `participant` (what a store must do, and may do beyond that), `past` (what it may show of an
   earlier epoch), `states` (what may follow what), `errors`.
2. What is on disk: `records`, `driver_facts` (who made a start), `codec`, `journal`, on top of `files`; what sinks keep
   over epochs: `state`.
3. Pure decisions: `view` (the journal folded), `plan` (the next step), `offsets` (did an epoch read the same rows),
   `guard` and `choices` (what a start refuses, what the user chose), `claims` (which journal a target belongs to),
   `commit_checks` (what a commit refuses), `resolution` (what a person may decide by hand).
4. The steps: `start`, `incarnations`, `batches`, `settlement`, `rolls`, and `coordinator`, which joins them.
5. What others see: `events`, `reporting` (steps become events), `log_lines` (events become log lines), `live`,
   `live_fold` and `live_writer` (what a driver is doing now), `process` (does a driver still run).
6. Around them: `settler` (retries), `recovery` (settling without a driver), `retirement`, `rescaling` and
   `restoration` (what commands record, by `command_starts`), `audit`, `row_digests` and `totals` (is every row there
   once), `failpoints` (where tests kill the process).
"""
