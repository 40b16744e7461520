"""Failpoints for the Python processes of a Spark Connect server that write batches: a file has them, and each query may
have others. The process that all other Python processes are forked from gets none.
"""

import os
import sys

_points = os.environ.get("EPOCHAL_TEST_POINTS", "")
if "pyspark.daemon" not in sys.orig_argv and _points and os.path.exists(_points):
    with open(_points, encoding="ascii") as _text:
        os.environ["EPOCHAL_FAILPOINTS"] = _text.read().strip()
