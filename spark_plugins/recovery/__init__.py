"""How long a recovery of Spark's own state takes: what a checkpoint holds, what follows, and settings for it.

``names``, ``stored``, ``changelog``, ``chains``, ``states``, ``model`` and ``knobs`` are pure: no Spark, no I/O and no
clock. ``reading`` reads the files of a checkpoint, also beside a running query. ``rates`` keeps what was measured on
this machine. ``drill`` and ``scratch`` start Spark in new processes and measure.
"""
